"""Logs as files and as a journal: written, and who reads the files."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.habits import needs
from tests.hang import HANG_SECONDS


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


class Journals:
    """A journal of systemd's own in a folder, and the journalctl that reads it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.journalctl = (str(needs.tool("journalctl")), "-D", str(folder))
        writer = str(needs.tool("systemd-journal-remote"))
        self._writer = (*needs.machine_id(), writer, "-o", f"{folder}/it.journal", "-")
        self._written = 0

    def write(self, unit: str, seconds: float, *messages: str) -> None:
        """Lines of a unit and of that time."""
        exported = ""
        for message in messages:
            self._written += 1
            exported += f"__REALTIME_TIMESTAMP={int(seconds * 1e6) + self._written}\n"
            exported += f"__MONOTONIC_TIMESTAMP={self._written}\n_BOOT_ID={1:032}\n"
            exported += f"_SYSTEMD_UNIT={unit}\nMESSAGE={message}\n\n"
        subprocess.run(
            self._writer,
            input=exported.encode(),
            check=True,
            capture_output=True,
            timeout=HANG_SECONDS,
        )
