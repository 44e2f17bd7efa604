"""File descriptors: as many as the process may have, and the part of them that a server may take."""

import resource

MOST_DESCRIPTORS = 65_536
"""Also `LimitNOFILE` of our units. More than that serves no cluster, and a table of a million costs memory."""
SHARE = 8
"""A server takes at most one part in so many, so that files and TensorFlow's own connections keep the others."""
_FEWEST = 4


def raise_limit() -> int:
    """Raise the soft limit of open files to the hard one, 65,536 at most; the soft limit from then on."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def share_of(most: int) -> int:
    """Connections that a server may hold: `most`, or its share of the descriptors where these are few."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if soft == resource.RLIM_INFINITY else max(_FEWEST, min(most, soft // SHARE))
