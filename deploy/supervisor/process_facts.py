"""What Linux's /proc says about one process."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ProcessIdentity:
    """A pid that cannot be mistaken for a later process with the same number: pid, boot, and start time in ticks."""

    pid: int
    start_ticks: int
    boot: str

    def alive(self) -> bool:
        """Whether this very process still runs (a zombie does not)."""
        fields = _stat_fields(self.pid)
        return fields is not None and fields[0] != "Z" and self == identify(self.pid)

    def kill(self) -> bool:
        """End it with SIGKILL; False when it had ended by itself, and then nothing else is hit."""
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        try:
            if not self.alive():  # asked while the handle keeps the pid from meaning another process
                return False
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        except ProcessLookupError:
            return False
        finally:
            os.close(handle)
        return True


def identify(pid: int) -> ProcessIdentity | None:
    """The identity of a living process, None where there is none."""
    fields = _stat_fields(pid)
    if fields is None:
        return None
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ProcessIdentity(pid, int(fields[19]), boot)


def frozen(pid: int) -> bool:
    """Whether the process is stopped by SIGSTOP or a debugger: it holds its port and answers no client."""
    fields = _stat_fields(pid)
    return fields is not None and fields[0] in {"T", "t"}


def anonymous_memory_bytes(pid: int) -> int | None:
    """Memory that cannot be dropped and read again from a file (RssAnon of proc(5)); None for a dead process."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return None


def _stat_fields(pid: int) -> list[str] | None:
    """Fields of /proc/<pid>/stat from the third (state) on; the second, the name, may hold spaces."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return stat.rpartition(")")[2].split()
