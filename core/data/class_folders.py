"""Files by class, one folder a class: `train/CLASS/FILE` and `test/CLASS/FILE`, or `CLASS/FILE`.

Without the two sets a fifth of each class is held out for the test, always the same files: a test
that moved with the seed of a job could not compare two jobs.
"""

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.data.archive import FolderTree
from core.data.batch import Batch
from core.data.given_streams import BATCH_BYTES
from core.errors import DataError

SETS = ("train", "test")
HELD_OUT_SHARE = 0.2
HELD_OUT_SEED = 0
LOOKED_AT = 200
"""Most entries of a folder that are looked at to recognize it."""
_LEFT_BEHIND = ("Thumbs.db", "desktop.ini", "__MACOSX")
"""What operating systems add to folders; what begins with a dot is passed over too."""


@dataclass(frozen=True)
class Filed:
    """One file: its name relative to the folder, its class, and whether it is for the test."""

    name: str
    label: int
    test: bool


def holds_classes(folder: Path, suffixes: Collection[str]) -> bool:
    """Whether one of the folder's classes holds a file with such an ending."""
    if not folder.is_dir():
        return False
    if (folder / SETS[0]).is_dir():
        base = folder / SETS[0]
    else:
        base = folder
    classes = (
        path
        for path in islice(sorted(base.iterdir()), LOOKED_AT)
        if path.is_dir() and os.access(path, os.R_OK)
    )
    return any(
        PurePosixPath(entry.name).suffix.lower() in suffixes
        for path in classes
        for entry in islice(path.iterdir(), LOOKED_AT)
    )


def wanted_files(names: Collection[str]) -> tuple[str, ...]:
    """Return names that are neither hidden, nor of the operating system, nor files beside folders.

    A README is such a file.
    """
    return tuple(
        name
        for name in names
        if "/" in name
        and not any(part.startswith(".") or part in _LEFT_BEHIND for part in name.split("/"))
    )


def filed(tree: FolderTree, suffixes: Collection[str]) -> tuple[tuple[str, ...], tuple[Filed, ...]]:
    """Return the names of the classes, and every file with its class, training files first.

    The names are in alphabetical order.

    Raises DataError naming the file, what was expected and the remedy.
    """
    names = wanted_files(tree.names())
    split = any(name.startswith(f"{SETS[0]}/") for name in names)
    by_class: dict[tuple[bool, str], list[str]] = {}
    for name in names:
        test, label = _place(tree, name, suffixes, split=split)
        by_class.setdefault((test, label), []).append(name)
    if not split:
        by_class = dict(_held_out(tree, {label: found for (_, label), found in by_class.items()}))
    labels = tuple(sorted({label for test, label in by_class if not test}))
    for test, label in by_class:
        if test and label not in labels:
            raise DataError(
                f"{tree.where}: test/{label}: expected a folder train/{label} too, got none; add"
                " it, or remove the class"
            )
    for is_for_test, part in zip((False, True), SETS, strict=True):
        if not any(found == is_for_test for found, _ in by_class):
            raise DataError(
                f"{tree.where}: {part}: expected {part}/CLASS/FILE, got no such file; add some"
            )
    if len(labels) < 2:
        raise DataError(
            f"{tree.where}: expected a folder for each of two classes or more, got"
            f" {', '.join(labels)}"
        )
    return labels, tuple(
        Filed(name, number, test)
        for test in (False, True)
        for number, label in enumerate(labels)
        for name in by_class.get((test, label), ())
    )


def _place(
    tree: FolderTree, name: str, suffixes: Collection[str], *, split: bool
) -> tuple[bool, str]:
    """Whether a file is for the test, and its class."""
    path = PurePosixPath(name)
    if split:
        expected = "train/CLASS/FILE or test/CLASS/FILE"
    else:
        expected = "CLASS/FILE"
    if len(path.parts) < 2 + split or (split and path.parts[0] not in SETS):
        raise DataError(f"{tree.where}: {name}: expected {expected}; move the file, or remove it")
    if path.suffix.lower() not in suffixes:
        raise DataError(
            f"{tree.where}: {name}: expected {', '.join(sorted(suffixes))}, got"
            f" {path.suffix or 'no ending'}; convert the file, or remove it"
        )
    if split:
        return (path.parts[0] == SETS[1], path.parts[1])
    return (False, path.parts[0])


def _held_out(
    tree: FolderTree, by_class: dict[str, list[str]]
) -> Iterator[tuple[tuple[bool, str], list[str]]]:
    for number, label in enumerate(sorted(by_class)):
        names = by_class[label]
        if len(names) < 2:
            raise DataError(
                f"{tree.where}: {label}: expected at least 2 files, so that one can be held out for"
                f" the test, got {len(names)}; add some, or put them into train/{label} and"
                f" test/{label}"
            )
        chosen = held_out(len(names), number)
        yield (False, label), [name for name, test in zip(names, chosen, strict=True) if not test]
        yield (True, label), [name for name, test in zip(names, chosen, strict=True) if test]


def pieces_of(files: Sequence[Filed], example_bytes: int, most: int) -> list[Sequence[Filed]]:
    """Cut the files of each set into pieces of at most `most`, and of the bytes of a batch."""
    at_once = max(1, min(most, BATCH_BYTES // example_bytes))
    sets = ([file for file in files if file.test == test] for test in (False, True))
    return [
        part[start : start + at_once] for part in sets for start in range(0, len(part), at_once)
    ]


def batch_of(x: NDArray[Any], piece: Sequence[Filed]) -> Batch:
    """The examples `x` of one piece with their classes."""
    return Batch(x, np.array([file.label for file in piece], np.int32), test=piece[0].test)


def held_out(count: int, stream: int) -> list[bool]:
    """Which of `count` things are for the test: a fifth, one at least, the same at every call."""
    random = np.random.Generator(np.random.Philox([HELD_OUT_SEED, stream]))
    chosen = np.zeros(count, np.bool_)
    chosen[random.permutation(count)[: max(1, round(HELD_OUT_SHARE * count))]] = True
    return [bool(test) for test in chosen]
