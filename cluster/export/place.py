"""A folder beside its place, which takes it whole at the end, or goes."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cluster.export.request import refuse_taken
from core.ground.errors import ClusterError, reason_of
from core.ground.files import PARTIAL


@contextmanager
def whole(out: Path) -> Iterator[Path]:
    """A folder beside `out` that takes its place at the end, or goes."""
    with beside(out) as partial:
        yield partial
        take_place(partial, out)


@contextmanager
def beside(out: Path) -> Iterator[Path]:
    """A folder beside `out` that goes at the end, as those of dead processes do.

    Raises ClusterError for an OSError of the block.
    """
    partial = out.with_name(f".{out.name}.{os.getpid()}{PARTIAL}")
    for abandoned in out.parent.glob(f".{out.name}.*{PARTIAL}"):
        number = abandoned.name.removesuffix(PARTIAL).rpartition(".")[2]
        if number.isdecimal() and not Path("/proc", number).exists():
            shutil.rmtree(abandoned, ignore_errors=True)
    try:
        try:
            partial.mkdir()
            yield partial
        finally:
            with suppress(OSError):
                shutil.rmtree(partial)
    except OSError as problem:
        raise ClusterError(
            f"{out}: the export cannot be written ({reason_of(problem)}): free some space, or name"
            " another folder with --out"
        ) from None


def take_place(folder: Path, out: Path) -> None:
    """Name the folder `out`. Raises UsageError where that is taken, OSError."""
    refuse_taken(out)
    folder.rename(out)
