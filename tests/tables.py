"""The tables beside the tests: `NAME.yaml`, or the part of it that lies under a key."""

from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent


def table(name: str, part: str = "") -> Any:
    """The rows of a part of a table; `name` is its file below this folder, without `.yaml`."""
    rows = yaml.safe_load((HERE / f"{name}.yaml").read_text(encoding="utf-8"))
    return rows[part] if part else rows
