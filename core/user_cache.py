"""Folders of the user.

A cache for what can be made again, and a state for what only this account may say.
"""

import os
from pathlib import Path


def user_cache() -> Path:
    """`$XDG_CACHE_HOME/pscluster`, else `~/.cache/pscluster`. It need not exist."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "pscluster"


def user_state() -> Path:
    """`$XDG_STATE_HOME/pscluster`, else `~/.local/state/pscluster`. It need not exist.

    A relative XDG_STATE_HOME counts as none: a folder from the net would bring its own.
    """
    base = os.environ.get("XDG_STATE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".local" / "state") / "pscluster"
