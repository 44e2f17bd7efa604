"""The user's folder for what can be made again."""

import os
from pathlib import Path

PREPARED_VARIABLE = "PSCLUSTER_PREPARED"


def user_cache() -> Path:
    """`$XDG_CACHE_HOME/pscluster`, else `~/.cache/pscluster`. It need not exist."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "pscluster"


def prepared_folder() -> Path:
    """Return where windows and examples are prepared, below the user's cache. It need not exist.

    Foreign code has a folder of its own there: what it writes is read by no other training.
    """
    return Path(os.environ.get(PREPARED_VARIABLE) or user_cache() / "prepared")
