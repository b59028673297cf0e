"""Bytes and values: frames, messages, addresses, JSON. Knows no state, clock or socket."""
