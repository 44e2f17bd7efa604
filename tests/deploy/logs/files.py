"""Logs as files: written, and who reads them."""

import os
from collections.abc import Iterator
from pathlib import Path


def write(path: Path, *lines: str, end: str = "\n") -> None:
    """Append lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as log:
        log.write("\n".join(lines) + end)


def readers(log: Path) -> Iterator[str]:
    """Processes that have this log open."""
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if os.readlink(descriptor) == str(log):
                yield descriptor.parts[2]
        except OSError:
            continue
