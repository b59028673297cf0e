"""The durable store: work that was promised, and the items of its streams.

Knows: rows, commits, the disk. Refuses to know: frames, sessions, clocks (time is an argument) and dice.
Called by: agent (durable work) and cli (submit, ticket, dead).
"""
