"""Prometheus metrics.

The catalogue, the exporter, and what a process reports about itself and its node.
"""
