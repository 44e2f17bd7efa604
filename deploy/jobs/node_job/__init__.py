"""A job on the coordinator's node, which systemd runs beyond the operator's connection."""
