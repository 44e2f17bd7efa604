"""A job on the coordinator's node: run by systemd there, it goes on when the operator's machine goes to sleep."""
