"""The process that plays systemd for one cluster on one host: it starts, watches and restarts the role processes."""
