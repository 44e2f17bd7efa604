"""A folder with one person's recordings: they are written in any format, prepared, or refused."""

import json
import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.data import Dataset, Source, find_source, prepare
from core.data.source import SYNTHETIC
from core.ground.errors import DataError
from tests.core.data.makers import write_folder, write_zip
from tests.tables import table

ASKED = ("window_steps", "window_stride", "seed", "progress")
"""What `prepare` takes beside the options of a kind."""
Show = Callable[..., Any]
"""Gives what a command has said, `out` and `err`."""
INPUTS: dict[str, list[Any]] = table("core/data/inputs")


def wrong(section: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test for every row of a section of inputs.yaml, which is a bad input and its error."""
    rows = [pytest.param(row, id=row["says"]) for row in INPUTS[section]]
    return pytest.mark.parametrize("row", rows)


def words(value: Any) -> str:
    """The id of a row: its texts alone."""
    return value if isinstance(value, str) else ""


def write(path: Path, content: Any) -> Path:
    """Write text, bytes, arrays by name, or the files of a set: as `path` ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, str):
        path.write_text(content, encoding="utf-8")
    elif isinstance(content, bytes):
        path.write_bytes(content)
    elif path.suffix == ".npz":
        np.savez_compressed(path, **content)
    elif path.suffix == ".zip":
        write_zip(path, content)
    else:
        write_folder(path, content)
    return path


def says(line: str, said: str) -> None:
    """One line that has each of the texts between ` ... `, in their order."""
    assert "\n" not in line
    at = 0
    for text in said.split(" ... "):
        assert text in line[at:], f"{line!r} lacks {text!r}"
        at = line.index(text, at) + len(text)


@contextmanager
def refused(said: str) -> Iterator[pytest.ExceptionInfo[DataError]]:
    """Expect a DataError that says this in one line."""
    with pytest.raises(DataError) as caught:
        yield caught
    says(str(caught.value), said)
    del caught  # which its own traceback holds: what an error left open would be closed late


def has(dataset: Dataset, **expected: Any) -> None:
    """Compare attributes, such as `inputs.dtype`, and what methods return, by name."""
    found = {}
    for name in expected:
        value: Any = operator.attrgetter(name)(dataset)
        if callable(value):
            value = value()
        if isinstance(value, np.ndarray):
            value = value.tolist()
        if isinstance(expected[name], list):
            value = list(value)
        found[name] = value
    assert found == expected


class Desk:
    """The files of one test, and the cache of what it prepares."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cache = folder / "cache"

    def write(self, name: str, content: Any) -> Path:
        return write(self.folder / name, content)

    def source(self, name: str | Path) -> Source:
        if name == SYNTHETIC:
            return find_source(SYNTHETIC, {}, self.folder, self.folder)
        return find_source(str(self.folder / name), {}, self.folder, self.folder)

    def read(self, name: str | Path, content: Any = None, **asked: Any) -> Dataset:
        """The prepared data of a file or folder, which `content` overwrites where it is given."""
        if content is not None:
            write(self.folder / name, content)
        known = {key: asked.pop(key) for key in ASKED if key in asked}
        return prepare(self.source(name), cache=self.cache, options=asked, **known)

    def cached(self) -> list[str]:
        return sorted(path.name for path in self.cache.glob("*"))

    def refuses(self, said: str, name: str | Path, content: Any = None, **asked: Any) -> None:
        """Its error is one line with the file's name, and the cache stays as it was."""
        before = self.cached()
        with refused(said) as caught:
            self.read(name, content, **asked)
        assert str(self.folder / name) in str(caught.value)
        assert self.cached() == before

    def tried(self, name: str | Path, content: Any = None, **asked: Any) -> Dataset | None:
        """The data, or None where the end is one line that begins with the file's name."""
        try:
            return self.read(name, content, **asked)
        except DataError as problem:
            line = str(problem)
        assert line.startswith(str(self.folder / name))
        assert "\n" not in line
        return None


def edit_manifest(folder: Path, **changes: Any) -> None:
    """Change fields of a prepared set's manifest, or drop those that become None."""
    path = folder / "manifest.json"
    fields = json.loads(path.read_text()) | changes
    dropped = {name for name, value in changes.items() if value is None}
    path.write_text(json.dumps({name: fields[name] for name in fields.keys() - dropped}))


def damaged(files: Mapping[str, bytes], row: Mapping[str, Any]) -> dict[str, bytes]:
    """A set's files with one line replaced, rows cut off, other content or none at all."""
    changed = dict(files)
    for name in row["file"].split(" + "):
        lines = files[name].splitlines(keepends=True)
        if "line" in row:
            lines[row["line"] - 1] = (row["text"] * row.get("times", 1) + "\n").encode("latin-1")
        changed[name] = b"".join(lines[: row.get("keep")])
        if row.get("gone"):
            del changed[name]
        if "whole" in row:
            changed[name] = row["whole"].encode()
    return changed
