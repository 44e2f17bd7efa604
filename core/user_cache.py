"""The user's folder for what can be made again."""

import os
from pathlib import Path


def user_cache() -> Path:
    """`$XDG_CACHE_HOME/pscluster`, else `~/.cache/pscluster`. It need not exist."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "pscluster"
