"""Writes requirements.lock: the exact versions of what is installed, without any address.

Knows: pip's list. Refuses to know: where packages came from. Called by: `make lock`.
"""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

LEFT_OUT = {"hermes-peer", "pip", "setuptools", "wheel"}


def main() -> None:
    found = {d.metadata["Name"].lower().replace("_", "-"): d.version for d in metadata.distributions()}
    lines = [f"{name}=={version}" for name, version in sorted(found.items()) if name not in LEFT_OUT]
    head = "# Exact versions for development and CI; made by `make lock`. The library's ranges are in pyproject.toml.\n"
    Path("requirements.lock").write_text(head + "\n".join(lines) + "\n")
    print(f"{len(lines)} packages")


if __name__ == "__main__":
    main()
