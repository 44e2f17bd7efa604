"""The account that a service becomes where root starts it, and what that account gets.

    STATE/               root's alone: token, authority and key are read before
    STATE/models/NAME/   root's; the account adds files, and can neither change nor remove others
    .../current.json     the account's, as is trial-NAME.json
    .../lock, versions/  root's; the account locks the one and reads the other
    STATE/targets/       the account's

So root's commands follow no link of the account: it cannot replace what they work in. What is
handed over is opened first, through no link, and is root's.
"""

import logging
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy

from core.accounts import MODELS_ACCOUNT, SERVICE_ACCOUNT, become, why_root
from core.errors import ClusterError, reason_of
from core.json_file import FOLDER_NO_LINK, NO_LINK

log = logging.getLogger(__name__)

CURRENT = "current.json"
VERSIONS = "versions"
LOCK = "lock"
_ROOT = 0


@dataclass(frozen=True)
class ServiceFiles:
    """Where a service finds the files that it uses while it answers."""

    versions: Path
    trial: Path
    targets: Path
    authority: Path | None


def is_needed() -> bool:
    """Return whether this process is root and can become the account; one line says why not."""
    if os.geteuid() != _ROOT:
        return False
    reason = why_root(account=SERVICE_ACCOUNT) or why_root(account=MODELS_ACCOUNT)
    if reason is not None:
        log.warning("the service runs as root: %s", reason)
    return reason is None


def is_handed(models: Path) -> bool:
    """Return whether the folder of a model's versions was handed over."""
    return models.stat().st_gid == SERVICE_ACCOUNT


def let_read(folder: Path) -> None:
    """Let the account read the files of a version, in a folder that root alone changes.

    Raises OSError.
    """
    for each in (folder, *folder.iterdir()):
        if each.is_symlink():
            continue
        os.chown(each, _ROOT, SERVICE_ACCOUNT)
        each.chmod(0o750 if each.is_dir() else 0o640)


def give_up_root(places: ServiceFiles, cage: Callable[[], None]) -> ServiceFiles:
    """Become the account for good, in the folder of the versions, and return where its files are.

    The account may enter none of the folders above; `cage` is entered while root may. No other
    thread must be at work. Raises ClusterError.
    """
    try:
        _hand_over(places)
        cage()
        authority = places.authority
        if authority is not None:
            authority = _kept(authority)
        targets = _kept(places.targets)
        _keep_modules()
        os.chdir(places.versions)
    except OSError as problem:
        raise ClusterError(
            f"{problem.filename or places.versions}: cannot be given to uid {SERVICE_ACCOUNT}"
            f" ({reason_of(problem)}): work in another folder"
        ) from None
    become(SERVICE_ACCOUNT)
    return ServiceFiles(Path(), Path(places.trial.name), targets, authority)


def _hand_over(places: ServiceFiles) -> None:
    """Give the account what it writes, and let it read the versions."""
    models = places.versions
    trial = places.trial
    models.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileNotFoundError):  # where earlier versions of the service kept it
        trial.replace(models / trial.name)
    with _opened(models, FOLDER_NO_LINK) as folder:
        with suppress(FileExistsError):
            os.mkdir(VERSIONS, 0o700, dir_fd=folder)
        with suppress(FileExistsError):
            os.close(os.open(LOCK, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder))
        for name, flags, mode in ((VERSIONS, FOLDER_NO_LINK, 0o750), (LOCK, NO_LINK, 0o660)):
            with _opened(name, flags, folder) as descriptor:
                os.fchown(descriptor, _ROOT, SERVICE_ACCOUNT)
                os.fchmod(descriptor, mode)
        for each in (models / VERSIONS).iterdir():
            if each.is_dir():
                let_read(each)
        for name in (CURRENT, trial.name):
            _give(name, folder)
        # sticky: each account changes and removes its own files alone
        os.fchown(folder, _ROOT, SERVICE_ACCOUNT)
        os.fchmod(folder, 0o1770)
    places.targets.mkdir(mode=0o700, exist_ok=True)
    with _opened(places.targets, FOLDER_NO_LINK, owners=(_ROOT, SERVICE_ACCOUNT)) as folder:
        for name in os.listdir(folder):
            _give(name, folder)
        os.fchown(folder, SERVICE_ACCOUNT, SERVICE_ACCOUNT)


@contextmanager
def _opened(
    path: Path | str, flags: int, folder: int | None = None, owners: tuple[int, ...] = (_ROOT,)
) -> Iterator[int]:
    descriptor = os.open(path, flags, dir_fd=folder)
    try:
        owner = os.fstat(descriptor).st_uid
        if owner not in owners:
            raise ClusterError(
                f"{path}: expected root's, it belongs to uid {owner}: serve as that account, or"
                " look at what is in it and give it to root"
            )
        yield descriptor
    finally:
        os.close(descriptor)


def _give(name: str, folder: int) -> None:
    """Give the account a plain file of root's with one name; all else stays as it is."""
    try:
        descriptor = os.open(name, NO_LINK, dir_fd=folder)
    except OSError:
        return
    try:
        found = os.fstat(descriptor)
        if stat.S_ISREG(found.st_mode) and found.st_uid == _ROOT and found.st_nlink == 1:
            os.fchown(descriptor, SERVICE_ACCOUNT, SERVICE_ACCOUNT)
    finally:
        os.close(descriptor)


def _kept(path: Path) -> Path:
    """Return a path to what is open here, for who may not enter the folders above it."""
    return Path(f"/proc/self/fd/{os.open(path, os.O_PATH | os.O_CLOEXEC)}")


def _keep_modules() -> None:
    """Have Python find the modules that it has not loaded yet, below folders like root's own."""
    moved: dict[str, str] = {}
    for place in sorted(map(os.path.abspath, sys.path), key=len, reverse=True):
        if os.path.isdir(place) and not _is_open(Path(place).parents):
            moved[place] = str(_kept(Path(place)))

    def found(path: str) -> str:
        for place, there in moved.items():  # the longest first: one may lie in another
            if path == place or path.startswith(f"{place}/"):
                return there + path[len(place) :]
        return path

    files = [Path(each) for each in (__file__, os.__file__, numpy.__file__)]
    if not all(path.stat().st_mode & stat.S_IROTH and _is_open([path.parent]) for path in files):
        _load_live()  # what is not for every account to read is loaded now or never
    sys.path[:] = [found(os.path.abspath(place)) for place in sys.path]
    for module in list(sys.modules.values()):
        paths = getattr(module, "__path__", None)
        if isinstance(paths, list):
            paths[:] = map(found, paths)


def _load_live() -> None:
    with suppress(ModuleNotFoundError):  # of MQTT, which not every service has
        import_module("recognise.service.live.devices")
    for name in ("endpoint", "phones"):
        import_module(f"recognise.service.live.{name}")


def _is_open(folders: Iterable[Path]) -> bool:
    """Return whether every account may enter the folders."""
    return all(each.stat().st_mode & stat.S_IXOTH for each in folders)
