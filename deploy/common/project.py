"""Where this project lies, and how its processes are started from any folder."""

import os
import sys
from pathlib import Path

from core.ground.files import user_cache

ROOT = Path(__file__).resolve().parents[2]
"""The folder that holds `cluster/` and `deploy/`: a checkout, or the site-packages of an installed
wheel."""
OWNER = "PSCLUSTER_OWNER"
"""A variable of `fab deploy start`: the id of the process with which a local cluster ends."""
CHECKOUT = (ROOT / "tools" / "make_venv.sh").is_file()


def project_cache() -> Path:
    """Return where wheels and locks stay: `.cache` of a checkout, else the user's cache."""
    if CHECKOUT:
        return ROOT / ".cache"
    return user_cache()


def module_command(module: str, *arguments: str) -> tuple[str, ...]:
    """`python -m module arguments` with the Python that runs now."""
    return (sys.executable, "-m", module, *arguments)


def environment_for_any_folder() -> dict[str, str]:
    """Return our environment, in which a `module_command` works from any working folder.

    Whatever the working folder holds, a folder named `cluster` for one, stays out of it.
    """
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "PYTHONSAFEPATH": "1",
    }
