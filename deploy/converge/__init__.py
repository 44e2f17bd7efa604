"""Deployments of machines: ask for facts, plan changes, apply them, and verify what they left."""
