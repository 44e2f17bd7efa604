"""A job on the coordinator's node: systemd runs it there, so it outlives the operator's connection."""
