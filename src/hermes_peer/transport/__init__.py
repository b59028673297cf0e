"""Byte pipes. Knows sockets; refuses to know frames, keys and sessions."""
