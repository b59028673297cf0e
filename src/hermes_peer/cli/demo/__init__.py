"""`hermes-peer demo`: real tools on real files, over a line that gets cut."""
