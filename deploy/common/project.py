"""Where this project lies, and how its Python modules are started as processes of their own."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The folder that holds `cluster/`, `deploy/` and `fabfile.py`."""


def module_command(module: str, *arguments: str) -> tuple[str, ...]:
    """`python -m module arguments` with the Python that runs now."""
    return (sys.executable, "-m", module, *arguments)


def environment_for_any_folder() -> dict[str, str]:
    """Our environment, with which a `module_command` works from any working folder: nothing here is installed.

    Whatever the working folder holds, a folder named `cluster` for one, stays out of it.
    """
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path), "PYTHONSAFEPATH": "1"}
