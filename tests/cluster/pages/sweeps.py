"""Folders of sweeps as `fab sweep` leaves them."""

import json
from pathlib import Path
from typing import Any

from tests.tables import table

CASES = table("cluster/pages/sweeps", "examples")
EXAMPLES: dict[str, dict[str, Any]] = {name: case["sweep"] for name, case in CASES.items()}
"""What is in `sweep.json`."""


def left(folder: Path, found: Any) -> Path:
    """The folder with its file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sweep.json").write_text(json.dumps(found))
    return folder
