"""Durable work: what is on disk before it is promised, and survives `kill -9` of either side (spec: durable)."""
