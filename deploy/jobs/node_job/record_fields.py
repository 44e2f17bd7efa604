"""Fields of a job's record, each with its type and bounds: the account writes it, and a node sends it."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MOST_BYTES = 16 << 10
MOST_PATH_CHARACTERS = 1024
MOST_PID = 1 << 22
"""PID_MAX_LIMIT of a 64-bit kernel (proc(5))."""
MOST_EXIT_CODE = 255

_JOB = re.compile(r"[a-z]{1,40}")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(\+00:00|Z)")
_RUN = re.compile(r"(/(?!\.{1,2}/)[^/\x00-\x1f\x7f]+)*/[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")


def read_small(path: Path) -> bytes:
    """The content of a plain file of at most MOST_BYTES. Raises OSError, ValueError for what is none."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as stream:
        content = stream.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError(f"{path}: expected at most {MOST_BYTES} bytes")
    return content


def read_object(path: Path) -> Mapping[str, Any]:
    """The flat JSON object in a small file. Raises OSError, ValueError for anything else."""
    try:
        content = json.loads(read_small(path))
    except RecursionError:
        raise ValueError(f"{path}: expected a flat JSON object") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path}: expected a JSON object, got {type(content).__name__}")
    return content


def whole_number(fields: Mapping[str, Any], name: str, least: int, most: int) -> int | None:
    """A whole number between two bounds, or None. Raises ValueError."""
    value = fields.get(name)
    if value is None:
        return None
    if type(value) is not int or not least <= value <= most:  # a bool is an int
        raise ValueError(f"{name}: expected a whole number from {least} to {most}, got {value!r:.60}")
    return value


def _text(fields: Mapping[str, Any], name: str, pattern: re.Pattern[str], what: str) -> str | None:
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > MOST_PATH_CHARACTERS or not pattern.fullmatch(value):
        raise ValueError(f"{name}: expected {what}, got {value!r:.60}")
    return value


def job_name(fields: Mapping[str, Any]) -> str:
    """The job. Raises ValueError."""
    value = _text(fields, "job", _JOB, "the name of a job")
    if value is None:
        raise ValueError("job: expected the name of a job, got none")
    return value


def time_of(fields: Mapping[str, Any], name: str) -> str | None:
    """UTC in ISO 8601. Raises ValueError."""
    return _text(fields, name, _TIME, "a time in UTC such as 2026-11-21T22:30:00+00:00")


def run_folder_of(fields: Mapping[str, Any]) -> str | None:
    """The absolute path of a run's folder, with no `..` in it and a plain name at its end. Raises ValueError."""
    return _text(fields, "run_folder", _RUN, "the absolute path of a run's folder")
