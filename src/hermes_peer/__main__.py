"""`python -m hermes_peer` is the command line."""

from hermes_peer.cli.main import run

if __name__ == "__main__":
    run()
