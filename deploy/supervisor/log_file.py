"""A log that a process appends to: kept from growing without end, and asked for its last words."""

import os
from pathlib import Path

LARGEST_BYTES = 8 * 2**20
"""A log beyond this is set aside as `<name>.log.1` when its process starts: an SD card is small."""

_LOOK_BACK_BYTES = 65536


def set_aside_if_large(log: Path) -> None:
    """Make way for a new log when this one is beyond LARGEST_BYTES; one earlier log is kept."""
    try:
        if log.stat().st_size > LARGEST_BYTES:
            log.replace(log.with_name(log.name + ".1"))
    except FileNotFoundError:
        return


def last_lines(log: Path, count: int, since: int = 0) -> list[str]:
    """Up to `count` last non-empty lines, looking at most 64 KiB back and not before byte `since`."""
    try:
        with log.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(since, end - _LOOK_BACK_BYTES))
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        return []
    return [line.strip() for line in text.splitlines() if line.strip()][-count:]
