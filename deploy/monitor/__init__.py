"""Prometheus and Grafana for a cluster: their files, and a Prometheus on this machine."""
