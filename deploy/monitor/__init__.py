"""Prometheus and Grafana for a cluster: their files, made from the inventory, and a Prometheus on this machine."""
