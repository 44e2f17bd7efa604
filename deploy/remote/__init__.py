"""Nodes over SSH: one connection a node, pinned host keys, a deadline on every wait."""
