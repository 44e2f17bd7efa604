"""The process for which a local cluster was started: the cluster ends with it, however it ends."""

import os
from contextlib import suppress

from deploy.common.project import OWNER


def open_owner() -> int | None:
    """Return a descriptor that becomes readable when the owner is gone, None without one.

    The variable leaves the environment. For an owner that is gone already the descriptor is
    readable at once.
    """
    named = os.environ.pop(OWNER, "")
    if not named.isdecimal():
        return None
    with suppress(ProcessLookupError):
        return os.pidfd_open(int(named))
    gone, other = os.pipe()
    os.close(other)
    return gone
