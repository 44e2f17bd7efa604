"""A training that is begun for a moment, in a process of its own, to see how long its updates take."""

import os
import re
import selectors
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from cluster.errors import ClusterError, ExitCode, UsageError
from cluster.sweeps.progress import Advance, Lines
from deploy.common.interrupts import interruptible
from deploy.common.project import die_with_parent, environment_for_any_folder, module_command
from deploy.sweeps.outlook import MeasuredRun

MODULE = "cluster.jobs.member"
ENOUGH_SECONDS = 3.0
"""Of updates."""
LONGEST_SECONDS = 300.0
END_SECONDS = 5.0
_ANONYMOUS = re.compile(r"^RssAnon:\s+(\d{1,12}) kB$", re.MULTILINE)


def measured_run(inventory: Path, overrides: Sequence[str], settings: str, flags: Sequence[str] = ()) -> MeasuredRun:
    """Begin the training of these overrides here, alone, and end it after a few seconds of updates.

    `settings` are its words for a person. Raises ClusterError with the line that it ended with, KeyboardInterrupt.
    """
    words = [word for one in (*overrides, "page.listen=off") for word in ("--set", one)]
    with tempfile.TemporaryDirectory(prefix="pscluster-sweep-") as folder:
        own = module_command(MODULE, "--folder", folder, "--", "--inventory", str(inventory), *words, "--quiet", *flags)
        with interruptible(), subprocess.Popen(
            own, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env=environment_for_any_folder(), preexec_fn=die_with_parent(),
        ) as process:  # fmt: skip
            try:
                return _watched(process, settings)
            finally:
                process.kill()


def _watched(process: "subprocess.Popen[bytes]", settings: str) -> MeasuredRun:
    assert process.stdout is not None
    begin, lines = time.monotonic(), Lines()
    first: tuple[float, Advance] | None = None
    latest: tuple[float, Advance] | None = None
    memory = 0
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while time.monotonic() - begin < LONGEST_SECONDS:
            if not selector.select(1.0):
                continue
            piece = os.read(process.stdout.fileno(), 1 << 16)
            for message in lines.add(piece):
                if isinstance(message, Advance):
                    latest, memory = (time.monotonic(), message), max(memory, _anonymous_bytes(process.pid))
                    first = first or latest
            if not piece or (first and latest and latest[0] - first[0] >= ENOUGH_SECONDS):
                break
    lines.close()
    if first is None or latest is None or not latest[1].done:
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_SECONDS)
        kind = UsageError if process.returncode == ExitCode.BAD_USAGE else ClusterError
        raise kind(f"{settings}: its training did not come to an update: {lines.last or 'it said nothing'}")
    updates = latest[1].done - first[1].done
    each = (latest[0] - first[0]) / updates if updates else (latest[0] - begin) / latest[1].done
    start = max(0.0, first[0] - begin - each * first[1].done)
    return MeasuredRun(settings, start, each, latest[1].total, memory)


def _anonymous_bytes(pid: int) -> int:
    """0 where the process is gone."""
    try:
        found = _ANONYMOUS.search(Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace"))
    except OSError:
        return 0
    return 1024 * int(found[1]) if found else 0
