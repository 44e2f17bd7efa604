"""Reads a JSON file that anybody may have written.

It is bounded, and of the one schema that this version knows.
"""

import json
import os
import stat
from pathlib import Path
from typing import Any

LARGEST_OF_RUN = 64 << 20
"""Bytes of a result, or of another JSON file in the folder of a run."""
MOST_LEVELS = 100
"""Lists and objects in each other; ours have ten."""
NO_LINK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""To open a file that anybody may have put there. Without O_NONBLOCK, opening a pipe would wait."""
FOLDER_NO_LINK = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def parsed_json(content: str | bytes | bytearray, **options: Any) -> Any:
    """Return the content of JSON that anybody may have written; `options` as `json.loads` has them.

    Raises ValueError for no JSON, and for one that is nested deeper than anything of ours: whatever
    walks or writes it afterwards would end in a RecursionError.
    """
    try:
        found = json.loads(content, **options)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    level = [found]
    for _ in range(MOST_LEVELS):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return found
    raise ValueError("nested too deeply")


def read_json(path: Path, most_bytes: int = LARGEST_OF_RUN) -> Any:
    """The content of the file.

    Raises OSError, and ValueError for a longer file, no file of bytes, or no JSON.
    """
    # Without O_NONBLOCK, opening a pipe would wait for its writer.
    with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise ValueError("not an ordinary file")
        content = stream.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise ValueError(f"longer than {most_bytes:,} bytes")
    return parsed_json(content)


def json_object(path: Path) -> dict[str, Any] | None:
    """The object in this file; None where there is none."""
    try:
        found = read_json(path)
    except (OSError, ValueError):
        return None
    if isinstance(found, dict):
        return found
    return None


def read_object(path: Path, most_bytes: int, schema: int) -> dict[str, Any]:
    """The object in the file.

    Raises OSError, and ValueError for a longer file, no JSON, or another schema.
    """
    found = read_json(path, most_bytes)
    if not isinstance(found, dict) or found.get("schema") != schema:
        raise ValueError(f'no object with "schema": {schema}')
    return found
