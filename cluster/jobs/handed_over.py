"""Prepared windows where the roles' account can read them, for a local cluster that root started.

Root keeps what it prepares below its home, which no other account may enter. Workers map the files by their path, so
they get a copy in a folder that they and root alone can read.
"""

import os
import shutil
import stat
import tempfile
from dataclasses import replace
from pathlib import Path

from cluster.data import Dataset, open_prepared
from cluster.data.dataset import CLASSES, MANIFEST, SUBJECTS, WINDOWS
from cluster.errors import DataError

FOLDER = Path("/var/cache/pscluster/roles")
_FILES = (WINDOWS, CLASSES, SUBJECTS, MANIFEST)


def handed_over(dataset: Dataset, account: int, folder: Path = FOLDER) -> Dataset:
    """The data set itself where `account` can read it, else its copy below `folder`, made where there is none.

    To be called as root. Raises DataError when it cannot be copied.
    """
    if _everyone_reads(dataset.folder.resolve()):
        return dataset
    copy = folder / dataset.sha256
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        if not _is_sound(copy, dataset):
            _replace(copy, dataset.folder, account)
    except OSError as problem:
        raise DataError(
            f"the roles run as uid {account}, which cannot read {dataset.folder}, and it cannot be copied to {folder} "
            f"({problem.strerror}): set XDG_CACHE_HOME to a folder that every account may enter, or free some room"
        ) from None
    return replace(dataset, folder=copy)


def _everyone_reads(folder: Path) -> bool:
    entered = all(each.stat().st_mode & stat.S_IXOTH for each in (folder, *folder.parents))
    return entered and all((folder / name).stat().st_mode & stat.S_IROTH for name in _FILES)


def _is_sound(copy: Path, dataset: Dataset) -> bool:
    try:
        return open_prepared(copy).sha256 == dataset.sha256
    except DataError:
        return False


def _replace(copy: Path, original: Path, account: int) -> None:
    partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=copy.parent))
    try:
        for name in _FILES:
            shutil.copyfile(original / name, partial / name)
            os.chown(partial / name, 0, account)
            (partial / name).chmod(0o640)
        os.chown(partial, 0, account)
        partial.chmod(0o750)
        if copy.exists():
            copy.rename(partial / "damaged")
        partial.rename(copy)
        shutil.rmtree(copy / "damaged", ignore_errors=True)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
