"""Prometheus and Grafana for a cluster: pure texts from the inventory, and a Prometheus of this machine's own."""
