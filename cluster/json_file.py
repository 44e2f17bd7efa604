"""Reads a JSON file that anybody may have written: bounded, and of the one schema that this version knows."""

import json
from pathlib import Path
from typing import Any


def read_object(path: Path, most_bytes: int, schema: int) -> dict[str, Any]:
    """The object in the file. Raises OSError, and ValueError for a longer file, no JSON, or another schema."""
    with path.open("rb") as stream:
        content = stream.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise ValueError(f"longer than {most_bytes:,} bytes")
    try:
        found = json.loads(content)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(found, dict) or found.get("schema") != schema:
        raise ValueError(f'no object with "schema": {schema}')
    return found
