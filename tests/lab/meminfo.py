"""Each node's own /proc/meminfo: lxcfs shows a reader the memory of its control group."""

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

from tests.lab.commands import LabError, clean_environment, run
from tests.lab.places import Places

START_SECONDS = 20.0


def start(places: Places) -> None:
    """Starts lxcfs, detached, and returns when it answers.

    Raises:
        LabError: It does not.
    """
    folder = places.told
    folder.mkdir(parents=True, exist_ok=True)
    log = places.run / "lxcfs.log"
    command = f"""
        setsid --fork lxcfs --foreground --disable-swap --pidfile={_pid_file(places)} {folder}
    """
    with log.open("w") as said:
        subprocess.run(
            command.split(),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env=clean_environment(),
            check=True,
        )
    deadline = time.monotonic() + START_SECONDS
    while not (folder / "proc" / "meminfo").exists():
        if time.monotonic() > deadline:
            raise LabError(
                "lxcfs did not start:"
                f" {log.read_text().strip().splitlines()[-1:] or 'it said nothing'}"
            )
        time.sleep(0.01)


def stop(places: Places) -> None:
    """Ends it, if it runs."""
    # Read from the mount table, because paths below a file system with a dead server do not answer.
    if any(
        line.split()[1] == str(places.told)
        for line in Path("/proc/mounts").read_text().splitlines()
    ):
        run("umount", "--lazy", places.told)
    if places.told.exists():
        places.told.rmdir()
    with contextlib.suppress(OSError, ValueError):
        pid = int(_pid_file(places).read_text())
        if Path(f"/proc/{pid}/comm").read_text() == "lxcfs\n":
            os.kill(pid, signal.SIGKILL)


def _pid_file(places: Places) -> Path:
    return places.run / "lxcfs.pid"
