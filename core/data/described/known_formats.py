"""Formats by name, which are files of `core/data/formats`, and a person's own as files."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from core.data.described.description import RecordingFormat
from core.documents import InventoryError, suggestion
from core.documents.section import Section
from core.ground.errors import DataError, reason_of

FOLDER = Path(__file__).resolve().parents[1] / "formats"
BESIDE = "format.yaml"
"""A format of this name in a folder of recordings needs no other word."""
Lines = Mapping[tuple[str | int, ...], int]
Schema = TypeVar("Schema", bound=Section)
OPEN = re.compile(r"^\s*(?:- )?(?P<key>\w+):\s+# \?\s*(?P<asks>.*?)\s*$")
"""A key of a draft without a value, and what it asks a person."""


def names() -> tuple[str, ...]:
    """Return the names of our formats, in alphabetical order."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))


def described(named: str | None, source: Path) -> RecordingFormat:
    """Return the format of this name or file; for None that beside the recordings in `source`.

    Raises DataError naming file, line and key.
    """
    if named is None:
        return _read(source / BESIDE)
    if named in names():
        return _read(FOLDER / f"{named}.yaml")
    path = Path(named).expanduser()
    if path.suffix.lower() not in (".yaml", ".yml"):
        near = suggestion(named, names()) or f"write one of {', '.join(names())}, or a .yaml file"
        raise DataError(f"jobs.train.data.format: unknown format {named!r:.60}; {near}")
    return _read(path)


def open_questions(text: str) -> Sequence[tuple[int, str]]:
    """Return what a draft leaves to a person: the line, and the key with its question."""
    matches = [(line, OPEN.match(content)) for line, content in enumerate(text.splitlines(), 1)]
    return [
        (line, f"{match['key']}: {match['asks']}") for line, match in matches if match is not None
    ]


def _refuse_open(path: Path, text: str) -> None:
    questions = open_questions(text)
    if questions:
        first, *other_questions = [f"{line}: {question}" for line, question in questions]
        raise DataError(
            f"{path}:{'; line '.join([first, *other_questions])}: write each value before its `# ?`"
            f" ({len(questions)} open)"
        )


def _read(path: Path) -> RecordingFormat:
    value, lines = document(path)
    like = value.get("like")
    if like is not None:
        if like not in names():
            raise DataError(f"{path}: like: expected one of {', '.join(names())}, got {like!r:.60}")
        value = {**document(FOLDER / f"{like}.yaml")[0], **value}
    return validated(path, value, lines, RecordingFormat)


def validated(path: Path, value: Any, lines: Lines, schema: type[Schema]) -> Schema:
    """Return a document as its schema has it. Raises DataError naming file, line and key."""
    try:
        return schema.model_validate(value)
    except ValidationError as problem:
        first = problem.errors()[0]
        remedy = first.get("ctx", {}).get("remedy")
        places = [first["loc"][:length] for length in range(len(first["loc"]), -1, -1)]
        line = next((lines[place] for place in places if place in lines), 1)
        if remedy:
            also = f"; {remedy}"
        else:
            also = "; docs/recordings.md has the keys"
        raise DataError(f"{path}:{line}: {reason_of(problem)}{also}") from None


def document(path: Path) -> tuple[Mapping[str, Any], Lines]:
    """Return what a YAML file says, and the line of each key. Raises DataError."""
    # A machine that recognises other recordings has no PyYAML.
    from core.documents.yaml_document import parse, read_document

    try:
        text = read_document(path, str(path), "a format", "name a file (docs/recordings.md)")
    except InventoryError as problem:
        raise DataError(str(problem)) from None
    _refuse_open(path, text)
    parsed = parse(text, str(path))
    for first in parsed.problems[:1]:
        raise DataError(str(first))
    if not isinstance(parsed.value, dict):
        raise DataError(f"{path}: expected keys such as `channels:`, got none")
    return parsed.value, parsed.lines
