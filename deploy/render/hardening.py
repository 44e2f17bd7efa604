"""What every unit of ours gives up: lines of `[Service]` (systemd.exec(5)). Pure."""

HARDENING = (
    "NoNewPrivileges=yes",
    "CapabilityBoundingSet=",
    "AmbientCapabilities=",
    "ProtectSystem=strict",
    "ProtectHome=yes",
    "PrivateTmp=yes",
    "PrivateMounts=yes",  # mounts of the node, NFS among them, still appear in the unit
    "PrivateDevices=yes",
    "ProtectHostname=yes",
    "ProtectKernelTunables=yes",
    "ProtectKernelModules=yes",
    "ProtectKernelLogs=yes",
    "ProtectControlGroups=yes",
    "ProtectProc=invisible",  # not ProcSubset=pid: memory and processor are read from /proc
    "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK",
    "RestrictNamespaces=yes",
    "RestrictRealtime=yes",
    "RestrictSUIDSGID=yes",
    "LockPersonality=yes",
    "RemoveIPC=yes",
    "SystemCallArchitectures=native",
    "SystemCallFilter=@system-service",
    "SystemCallFilter=~@privileged",
    # Not ProtectClock: it forbids asking whether the clock is right too. Without CAP_SYS_TIME nobody can set it anyway.
    "SystemCallFilter=adjtimex clock_adjtime",
    "SystemCallErrorNumber=EPERM",
    "UMask=0027",
)
"""Not MemoryDenyWriteExecute: TensorFlow compiles code while it runs."""
