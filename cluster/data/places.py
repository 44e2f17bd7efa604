"""The folders in which recordings are looked for and prepared windows are kept."""

import os
from pathlib import Path

PROJECT_ROOT = Path(__file__).resolve().parents[2]
"""The folder that holds `cluster/`; `../shared/data` is beside it."""


def user_cache() -> Path:
    """The user's cache folder, where recordings may lie and prepared windows go."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "pscluster"
