"""One made-up movement of three people, and writers that put it into files of many forms."""

import gzip
import io
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from operator import add, mul
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from core.data import Dataset, prepare
from core.data.source import DESCRIBED, Source
from tests.tables import table

PEOPLE = ("anna", "bert", "cleo")
LABELS = ("rest", "walk")
STEPS = 80
HERTZ = 50
AXES = ("ax", "ay", "az", "gx", "gy", "gz")
NAMES = ("time", *AXES, "label", "person")

Row = dict[str, Any]


def rows_of(person: str) -> list[Row]:
    """Some seconds of each label; acceleration in g and rotation in rad/s, four decimals."""
    random = np.random.default_rng(PEOPLE.index(person))
    found = []
    for place, label in enumerate(LABELS):
        for step in range(STEPS):
            values = random.normal([0, 0, 1, 0, 0, 0], [0.1 + place] * 3 + [0.5] * 3)
            time = (place * STEPS + step) / HERTZ
            named = dict(zip(AXES, (round(float(value), 4) for value in values), strict=True))
            found.append({"time": time, **named, "label": label, "person": person})
    return found


@dataclass(frozen=True)
class Form:
    """How text is written."""

    names: Sequence[str] = NAMES
    separator: str = ","
    header: bool = True
    before: str = ""
    after: str = ""
    newline: str = "\n"
    encoding: str = "utf-8"
    quoted: bool = False
    comma: bool = False
    of: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """By column, the formula of what becomes of its value, and what that needs."""

    def bytes_of(self, rows: Sequence[Row]) -> bytes:
        """The file."""
        lines = [self.before] if self.before else []
        if self.header:
            lines.append(self._line(self.names))
        for row in rows:
            cells = [self._cell(name, row.get(name, 7)) for name in self.names]
            lines.append(self._line(cells))
        return (self.newline.join(lines) + self.newline).encode(self.encoding)

    def _cell(self, name: str, value: Any) -> str:
        formula, *needs = self.of.get(name, ("as it is",))
        cell = str(FORMULAS[formula](*needs, value))
        return cell.replace(".", ",") if self.comma else cell

    def _line(self, cells: Sequence[str]) -> str:
        if self.quoted:
            cells = [f'"{cell}"' for cell in cells]
        return self.separator.join(cells) + self.after


FORMULAS: Mapping[str, Callable[..., Any]] = {
    "as it is": str,
    "moment": lambda pattern, time: _moment(time).strftime(pattern),
    "moment before midnight": lambda pattern, time: _moment(time + 12799).strftime(pattern),
    "of the epoch times": lambda factor, time: round((1.78e9 + time) * factor),
    "of two in": lambda hertz, time: round(2 * hertz * time) // 2 / hertz,
    "in place of": lambda others, word: others[word],
    "times": mul,
    "plus": add,
    "rounded times": lambda factor, value: round(factor * value),
    "is": lambda other, value: other,
    "next of": lambda others, value: next(others),
    "positive is": lambda other, value: other if value > 0 else value,
    "large is": lambda other, value: other if value > 1.8 else value,
}


EVERYONE = [row for person in PEOPLE for row in rows_of(person)]
DESCRIBED_SO: Mapping[str, Any] = table("core/data/tables", "described so")


def zipped(files: Mapping[str, bytes]) -> bytes:
    """An archive of these files."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return stream.getvalue()


def put(folder: Path, files: Mapping[str, bytes], description: Mapping[str, Any]) -> Path:
    """Write a folder of recordings with their description."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / "format.yaml").write_text(yaml.safe_dump(dict(description)), encoding="utf-8")
    return folder


def one_file(folder: Path, content: bytes | None = None, name: str = "r.csv") -> Path:
    """Write a folder with one described file: by default the readings of everyone."""
    content = Form().bytes_of(EVERYONE) if content is None else content
    return put(folder, {name: content}, {"files": "r.csv", **DESCRIBED_SO})


def windows_of(folder: Path, window_steps: int = 32, **options: Any) -> Dataset:
    """What a training gets of these recordings, at stride 16."""
    return prepare(
        Source(DESCRIBED, folder, ""),
        window_steps=window_steps,
        window_stride=16,
        cache=folder.parent / "cache",
        options=options,
    )


def iso(time: float) -> str:
    """A moment of 2026."""
    return _moment(time).strftime("%Y-%m-%dT%H:%M:%S.%f")


def _moment(time: float) -> datetime:
    return datetime.fromtimestamp(1_780_000_000 + time, UTC)


def objects(rows: Sequence[Row]) -> bytes:
    """A list of objects in JSON."""
    return json.dumps(list(rows)).encode()


def packed(content: bytes) -> bytes:
    """The bytes through gzip."""
    return gzip.compress(content)
