"""Root's Prometheus as an account of its own, which reads its folder and writes its figures alone.

The folder lies below root's own, which the account cannot enter: it starts in the folder, and every
path is relative to it. The services' targets are copied there.
"""

import os
import shutil
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from core.accounts import FIGURES_ACCOUNT, why_root
from core.atomic_write import atomic_write
from core.errors import ClusterError, reason_of
from core.exported.files import read_bytes

COPIES = "services-here"
"""In the folder: a copy of the state of services, as far as Prometheus reads it."""
DATA = "data"
_MOST_TARGETS = 256
_LARGEST_BYTES = 64 << 10
_PROGRAM = "prometheus"


def account(say: Callable[[str], None]) -> int | None:
    """Return the account for a Prometheus that root starts, None for this process's own."""
    if os.geteuid() != 0:
        return None
    reason = why_root(account=FIGURES_ACCOUNT)
    if reason is None:
        return FIGURES_ACCOUNT
    say(f"Prometheus runs as root: {reason}")
    return None


def prefix(account: int) -> tuple[str, ...]:
    """Return the words before the program: it dies with its parent still."""
    return (
        "setpriv",
        f"--reuid={account}",
        f"--regid={account}",
        "--clear-groups",
        "--no-new-privs",
        "--bounding-set=-all",
        "--inh-caps=-all",
        "--pdeathsig=keep",
        "--",
    )


def prepare(folder: Path, secret: Path, account: int) -> None:
    """Let the account read the folder and `secret` in it, and write the figures.

    Raises ClusterError.
    """
    data = folder / DATA
    try:
        data.mkdir(exist_ok=True)
        if data.lstat().st_uid == 0:  # of an earlier version: root alone has written there
            for path in (data, *data.rglob("*")):
                os.chown(path, account, account, follow_symlinks=False)
        os.chown(secret, account, account)
        for path in (folder, *folder.glob("*/"), *folder.glob("*/*.yml"), *folder.glob("*.yml")):
            if path not in (data, secret) and path.lstat().st_uid == 0:
                path.chmod(0o755 if path.is_dir() else 0o644)
    except OSError as problem:
        raise ClusterError(
            f"{folder}: cannot be given to uid {account} ({reason_of(problem)}): remove it"
        ) from None


def reachable(program: Path, folder: Path) -> Path:
    """Return the program where every account may start it: itself, or a copy in the folder.

    Raises ClusterError.
    """
    real = program.resolve()
    if all(one.stat().st_mode & stat.S_IXOTH for one in (real, *real.parents)):
        return real
    copy = folder / _PROGRAM
    try:
        seen = real.stat()
        if not copy.exists() or copy.stat().st_size != seen.st_size:
            shutil.copyfile(real, copy)
        copy.chmod(0o755)
    except OSError as problem:
        raise ClusterError(f"{copy}: cannot be copied ({reason_of(problem)})") from None
    return Path(f"./{_PROGRAM}")


def copy_targets(state: Path, folder: Path) -> None:
    """Bring the copies of the services' targets up to date; what cannot be read is left out."""
    there = folder / COPIES / "targets"
    there.mkdir(mode=0o755, parents=True, exist_ok=True)
    wanted = sorted((state / "targets").glob("*.json"))[:_MOST_TARGETS]
    names = set()
    for path in wanted:
        with suppress(OSError, ValueError, ClusterError):
            content = read_bytes(path, _LARGEST_BYTES)  # the folder is the service's account's
            names.add(path.name)
            copy = there / path.name
            if not copy.exists() or copy.read_bytes() != content:
                atomic_write(copy, content)
                copy.chmod(0o644)
    for copy in there.glob("*.json"):
        if copy.name not in names:
            copy.unlink(missing_ok=True)
