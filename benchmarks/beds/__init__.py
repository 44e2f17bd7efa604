"""Clusters, networks and CPU quotas for the length of a measurement."""
