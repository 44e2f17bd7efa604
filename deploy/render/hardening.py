"""What a process of the cluster may not do on its node: the lines every unit shares."""

HARDENING = ("NoNewPrivileges=yes",)
