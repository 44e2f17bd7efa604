"""Prometheus metrics: the exporter, and what a process and its node tell about themselves."""
