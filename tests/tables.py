"""The tables beside the tests: `NAME.yaml`, or the part of it that lies under a key."""

from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent


def table(name: str, part: str = "") -> Any:
    """The rows of a part of a table; `name` is its file below this folder, without `.yaml`."""
    rows = rows_of(HERE / f"{name}.yaml")
    return rows[part] if part else rows


def rows_of(path: Path) -> Any:
    """The content of a table, read by libyaml: PyYAML itself takes ten times as long.

    A lone surrogate, which some tests need, is read by PyYAML alone.
    """
    try:
        return yaml.load(path.read_bytes(), yaml.CSafeLoader)
    except yaml.YAMLError:
        return yaml.safe_load(path.read_bytes())
