"""Whose code an app is: the digests that this account trained or trusted, kept apart from runs.

A run's folder is a program, and another machine may have written it. So code of a run is imported
only where its digest is listed here. On a node the list of the operator counts, which comes with
the job: what lies on the node itself may be anybody's.
"""

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from core.control.own_state import OTHERWISE, make_private, user_state
from core.ground.errors import UsageError
from core.ground.files import atomic_write, write_refusal

DIGEST = re.compile(r"[0-9a-f]{64}")
FLAG = "--trust-app"
VARIABLE = "PSCLUSTER_OWN_APPS"
"""Environment variable: the operator's list, which takes the place of this account's own."""
MOST = 1000
"""Digests that travel with a job, the latest ones."""


def sent() -> frozenset[str] | None:
    """The operator's list on a node; None where this account's own counts."""
    listed = os.environ.get(VARIABLE)
    if listed is None:
        return None
    return frozenset(listed.split())


def as_variable(digests: Iterable[str]) -> dict[str, str]:
    """The list for the environment of a process on a node."""
    return {VARIABLE: " ".join(digest for digest in digests if DIGEST.fullmatch(digest))}


def remember(digest: str, source: str) -> None:
    """Add the digest to this account's list; `source` is for people who read it.

    Raises ClusterError if the list cannot be written.
    """
    path = _folder() / digest
    try:
        make_private(path.parent)
    except OSError as problem:
        raise write_refusal(
            path.parent, "the list of your apps cannot be written", problem, OTHERWISE
        ) from None
    atomic_write(path, f"{source}\n".encode(errors="replace"), OTHERWISE)


def trust(digest: str) -> None:
    """Do what `--trust-app DIGEST` says. Raises UsageError for another text, ClusterError."""
    if not DIGEST.fullmatch(digest):
        raise UsageError(
            f"{FLAG}: expected the digest of an app, 64 hexadecimal digits, got {digest!r:.80}"
        )
    remember(digest, f"trusted with {FLAG}")


def digests() -> tuple[str, ...]:
    """Return this account's list, the latest first, at most MOST."""
    dated_digests = []
    with suppress(OSError), os.scandir(_folder()) as entries:
        for entry in entries:
            if is_own(entry.name):
                with suppress(OSError):
                    dated_digests.append((-entry.stat().st_mtime_ns, entry.name))
    return tuple(name for _, name in sorted(dated_digests)[:MOST])


def is_own(digest: str) -> bool:
    """Whether the digest is listed."""
    listed = sent()
    if listed is not None:
        return digest in listed
    try:
        return (
            DIGEST.fullmatch(digest) is not None
            and (_folder() / digest).stat().st_uid == os.geteuid()
        )
    except OSError:
        return False


def refuse_foreign(digest: str, run: Path) -> None:
    """Raise UsageError unless the digest is listed. `run` has the code."""
    if not is_own(digest):
        raise UsageError(
            f"{run}: has code that was not trained from here, or only by an earlier version, and it"
            f" would run as you: read {run / 'app'} first, and if you trust it add {FLAG} {digest}"
        )


def _folder() -> Path:
    return user_state() / "apps"
