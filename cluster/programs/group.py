"""All processes of a program: read until each has ended, or the first failure ends all.

How each ended is said in words and figures. The roles' own processes restart beside them.
"""

import selectors
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from signal import Signals
from typing import Any

from cluster.programs.lead import RunningProcess
from cluster.programs.process import Usage, read_rest
from cluster.programs.program import ProgramMember
from core.control.role_restart import request
from core.inventory import Inventory
from core.metrics.catalogue import Reading

LOOK_SECONDS = 0.1
USE_SECONDS = 2.0

INTERRUPTED_SECONDS = 20.0
TERMINATED_SECONDS = 10.0
"""A program gets SIGINT, so much later SIGTERM, then SIGKILL: `fab` and systemd kill the whole job
after 60 s."""


@dataclass
class GroupMember:
    """One member of the group and its end.

    `on_output` gets its output, no bytes at the end; it ran for `seconds`.
    """

    member: ProgramMember
    running: RunningProcess
    on_output: Callable[[bytes], None]
    began: float = field(default_factory=time.monotonic)
    return_code: int | None = None
    seconds: float | None = None
    used: Usage = field(default_factory=Usage)
    ended_by_us: bool = False
    """Whether it ended because we asked: another one had failed, or a person cancelled."""


class Group:
    """Runs its members to their end.

    `first_failed` is the member that failed by itself and first, if one did.
    """

    def __init__(self, members: Iterable[GroupMember], asked_to_end: Callable[[], bool]) -> None:
        """`asked_to_end()`: whether a person cancels."""
        self.members = tuple(members)
        self.first_failed: GroupMember | None = None
        self._asked_to_end = asked_to_end
        self._selector = selectors.DefaultSelector()
        self._measured = float("-inf")
        self._ending_since: float | None = None
        self._sent: Signals | None = None

    def run(self, on_look: Callable[[], None] = lambda: None) -> None:
        """Return once every part has ended. `on_look()` is called some times a second."""
        for part in self.members:
            self._selector.register(part.running.fileno(), selectors.EVENT_READ, part)
        try:
            while any(part.return_code is None for part in self.members):
                for key, _ in self._selector.select(LOOK_SECONDS):
                    self._read(key.data)
                self._look()
                on_look()
        finally:
            self._selector.close()
            for part in self.members:
                part.running.close()
                part.on_output(b"")

    def _read(self, part: GroupMember) -> bool:
        """Take what it printed; whether there was something."""
        piece = part.running.read_output()
        if piece:
            part.on_output(piece)
        elif piece is not None and part.running.fileno() in self._selector.get_map():
            self._selector.unregister(part.running.fileno())
        return bool(piece)

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._measured >= USE_SECONDS:
            self._measured = now
            for part in self.members:
                if part.return_code is None:
                    part.used = part.running.use()
        for part in self.members:
            if part.return_code is None:
                code = part.running.poll()
                if code is not None:
                    self._ended(part, code)
        if self._ending_since is None and (self.first_failed is not None or self._asked_to_end()):
            self._ending_since = now
        if self._ending_since is not None:
            self._end(now - self._ending_since)

    def _ended(self, part: GroupMember, code: int) -> None:
        part.seconds = time.monotonic() - part.began
        read_rest(lambda: self._read(part))
        part.return_code = code
        part.used = part.running.use()
        part.ended_by_us = self._ending_since is not None
        if code and not part.ended_by_us and self.first_failed is None:
            self.first_failed = part

    def _end(self, seconds: float) -> None:
        """Ask the others to end: SIGINT if a person cancels, else SIGTERM, SIGKILL at last."""
        cancelled = self.first_failed is None
        if cancelled:
            number = Signals.SIGINT
        else:
            number = Signals.SIGTERM
        patience = TERMINATED_SECONDS
        if cancelled:
            patience += INTERRUPTED_SECONDS
            if seconds >= INTERRUPTED_SECONDS:
                number = Signals.SIGTERM
        if seconds >= patience:
            number = Signals.SIGKILL
        if number is self._sent:
            return
        self._sent = number
        for part in self.members:
            if part.return_code is None:
                part.running.ask(number)


def describe_part(part: GroupMember) -> dict[str, Any]:
    """Return the entry of a task in the result."""
    return {
        "node": part.member.node,
        "address": part.member.address,
        "exit_code": exit_code(part.return_code),
        "signal": signal_name(part.return_code),
        "ended_by_us": part.ended_by_us,
        "elapsed_seconds": part.seconds,
        "cpu_seconds": part.used.cpu_seconds,
        "peak_memory_bytes": part.used.peak_bytes,
    }


def exit_code(code: int | None) -> int | None:
    """Return the code as a shell has it: 128 and the number for a signal."""
    if code is None or code >= 0:
        return code
    return 128 - code


def signal_name(code: int | None) -> str | None:
    """Return the name of the signal that ended a process, None where none did."""
    if code is None or code >= 0:
        return None
    return _name(-code)


def _name(number: int) -> str:
    if number in {int(signal_number) for signal_number in Signals}:
        return Signals(number).name
    return f"signal {number}"


def ending_in_words(code: int) -> str:
    """Return `exit code 3` or `signal 9 (SIGKILL)`."""
    if code >= 0:
        return f"exit code {code}"
    return f"signal {-code} ({_name(-code)})"


def read_uses(uses: Mapping[str, Usage]) -> Iterator[Reading]:
    """Yield three figures of each member (`chief`, `worker:1`), as it was looked at last."""
    for member, used in uses.items():
        yield Reading("program_cpu_seconds_total", used.cpu_seconds, (member,))
        yield Reading("program_resident_bytes", used.memory_bytes, (member,))
        yield Reading("program_processes", used.processes, (member,))


ANSWER_SECONDS = 2.0


def server_processes(inventory: Inventory) -> dict[str, str]:
    """Return which process each parameter server is; empty where it is not ready.

    Its metrics port names it in a header.
    """
    processes = {}
    for task in inventory.of_role("ps"):
        status, process = request(task.metrics_address, "GET", "/ready", ANSWER_SECONDS)
        processes[task.name] = process if status == 200 else ""
    return processes
