"""Hermes Peer."""
