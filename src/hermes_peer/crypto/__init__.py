"""Keys, handshake, records.

Knows: how two fingerprints become four secrets, and how bytes are sealed under them.
Refuses to know: clocks, sockets, disks, dice, whom to trust. Called by: core, access, registry, agent.
"""
