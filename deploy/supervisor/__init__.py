"""The process that plays systemd for one cluster on one host."""
