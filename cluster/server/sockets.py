"""Finds and shuts the TCP sockets of another process (pidfd_getfd, Linux 5.6). Standard library only."""

import contextlib
import ctypes
import errno
import os
import socket
from pathlib import Path

_PIDFD_GETFD = 438  # the same number on x86_64 and aarch64


def sockets_to(process: int, addresses: set[tuple[str, int]]) -> list[int]:
    """Descriptors of `process` whose TCP peer is one of the (IPv4 address, port) pairs."""
    inodes: dict[str, tuple[str, int]] = {}
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{process}/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                address, port = fields[2].split(":")
                # An IPv4 peer ends a mapped IPv6 address; /proc writes it as one little-endian word.
                inodes[fields[9]] = (socket.inet_ntoa(bytes.fromhex(address[-8:])[::-1]), int(port, 16))
    found = []
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{process}/fd"):
            with contextlib.suppress(OSError):
                link = os.readlink(f"/proc/{process}/fd/{name}")
                if link.startswith("socket:[") and inodes.get(link[8:-1]) in addresses:
                    found.append(int(name))
    return found


def cut(process: int, addresses: set[tuple[str, int]]) -> int:
    """Shut the sockets of `process` to these addresses; returns their number.

    Raises OSError if the kernel refuses: EPERM (ptrace is restricted), ENOSYS (older than Linux 5.6), or
    ProcessLookupError when the process is gone.
    """
    descriptors = sockets_to(process, addresses)
    if not descriptors:
        return 0
    libc = ctypes.CDLL(None, use_errno=True)
    handle = os.pidfd_open(process)
    try:
        done = 0
        for descriptor in descriptors:
            copy = libc.syscall(_PIDFD_GETFD, handle, descriptor, 0)
            if copy < 0:
                error = ctypes.get_errno()
                if error == errno.EBADF:  # closed since we looked
                    continue
                raise OSError(error, os.strerror(error))
            with socket.socket(fileno=copy) as peer, contextlib.suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)
                done += 1
        return done
    finally:
        os.close(handle)
