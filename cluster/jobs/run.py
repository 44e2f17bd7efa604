"""The job `run`: a person's own program, on the coordinator's node or once on each worker's node.

This process loads no TensorFlow: it stays beside the program on a node of 1 GB. It starts the program, keeps what it
prints, measures it, and ends it whole.
"""

import logging
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from signal import Signals
from typing import Any

from cluster.control.client import NoAnswerError, ask
from cluster.control.server import PROCESS_HEADER
from cluster.control.token import own_token
from cluster.errors import ClusterError, ExitCode
from cluster.inventory import Inventory, Task
from cluster.inventory.templates import free_ports
from cluster.jobs.cancel import Cancel
from cluster.jobs.job_metrics import ProgramMetrics
from cluster.jobs.lifecycle import Job
from cluster.jobs.progress import Display
from cluster.jobs.roles import RunAnnouncer, of_all
from cluster.jobs.run_folder import SPEAKER, RunFolder
from cluster.logs.terminal import say
from cluster.programs.group import Group, Part
from cluster.programs.lead import LOST, Lead
from cluster.programs.leftovers import end_marked
from cluster.programs.output import BoundedLog, ShownOutput
from cluster.programs.process import ProgramProcess, Usage
from cluster.programs.roster import (
    TOKEN_VARIABLE,
    Member,
    chief_config,
    chief_of,
    environment_of,
    worker_variables,
    workers_of,
)
from cluster.programs.wish import ProgramWish
from cluster.server.probe import answering
from cluster.server.sockets import check_free
from cluster.status import events
from cluster.status.state import LONGEST_TEXT

log = logging.getLogger(__name__)

FILES = "files"
"""In the run's folder: the working folder of the program."""
ATTEMPTS = "attempts"
"""A file of the run: how often the program was begun."""
ANSWER_SECONDS = 2.0
CLEAR_SECONDS = 15.0
"""How long the end of a program waits for roles that restart."""
NOTED_SECONDS = 5.0
"""Between two lines of the program in the events of the run."""
_MISSING = re.compile(r"^ModuleNotFoundError: No module named '([\w.]+)'", re.MULTILINE)
_NO_LEGACY_KERAS = "tf_keras"


class ProgramFailed(ClusterError):
    """The program ended with another code than 0, by itself."""


class ProgramKilled(ClusterError):
    """A signal that we did not send ended the program: another attempt can succeed."""

    exit_code = ExitCode.PROGRAM_KILLED


class ProgramLostServer(ClusterError):
    """The program failed, and a parameter server was lost with its variables: another attempt can succeed."""

    exit_code = ExitCode.SERVER_LOST


class ProgramRun(Job):
    """One run of a program."""

    name = "run"

    def __init__(
        self, inventory: Inventory, display: Display, cancel: Cancel, wish: ProgramWish, quiet: bool = False
    ) -> None:
        super().__init__(inventory, display, cancel)
        self._wish, self._quiet = wish, quiet
        ProgramMetrics(self.metrics.registry, self._uses)
        self._noted_at, self._latest = 0.0, ""
        self._group: Group | None = None
        self._lead: Lead | None = None
        self._attempt = 0
        self.result_path: Path | None = None
        """Where the result is, or will be, once there is a folder."""

    def run(self, folder: RunFolder) -> None:
        """Run it to its end. Raises ClusterError unless it ends with 0, or because it was cancelled."""
        self.result_path = folder.result_path
        self._attempt = _count_attempt(folder.path / ATTEMPTS)
        if self._attempt > 1 + self._wish.restarts:
            raise ProgramFailed(f"{self._wish.name} is not started again: --restarts {self._wish.restarts}")
        mark = str(folder.path.resolve())
        end_marked(mark)  # of an attempt whose runner was killed
        self.metrics.serve(self.inventory.task("coordinator", 0))
        roles = [task for task in self.inventory.tasks() if task.role != "coordinator"]
        servers = _processes(self.inventory) if self._wish.on == "chief" else {}
        with RunAnnouncer(roles, SPEAKER.run):
            self.stream.emit(events.StageBegan("run"))
            try:
                self._group = Group(self._parts(folder.path, mark), lambda: self.cancel.asked)
                self._group.run(self._note)
            except BaseException:
                self._leave(last=True)
                raise
            finally:
                left = end_marked(mark)
            self._clear_roles(roles)
        if left:
            log.warning("%s left %d processes behind: ended", self._wish.name, left)
        failed = self._group.first_failed
        if failed is None:
            self._leave(last=True)
            return
        failure = self._failure(failed, folder.path, lambda: servers and servers != _processes(self.inventory))
        self._leave(last=isinstance(failure, ProgramFailed))
        raise failure

    def _clear_roles(self, roles: Sequence[Task]) -> None:
        """Restart the roles where a chief could not take leave of them: its variables and calls are still there."""
        parts = () if self._group is None or self._wish.on != "chief" else self._group.parts
        if not any((part.return_code or 0) < 0 for part in parts):
            return
        before = of_all(roles, _process_of)
        log.info("restarting the roles: the program has left its variables there")
        of_all(roles, _restart)
        end = time.monotonic() + CLEAR_SECONDS
        while time.monotonic() < end:
            now = of_all(roles, _process_of)
            if all(new and new != old for new, old in zip(now, before, strict=True)):
                return
            time.sleep(0.2)

    def _leave(self, *, last: bool) -> None:
        """Hang up on the other nodes; unless this is the `last` attempt, their runners wait for the next one."""
        if self._lead is not None:
            self._lead.close(last)
            self._lead = None

    def complete(self) -> bool:
        """Whether it ended by itself."""
        return self._group is not None and all(
            part.return_code is not None and not part.asked for part in self._group.parts
        )

    def result(self) -> dict[str, Any]:
        """What there is so far. `exit_code` is the first failure's, or 0."""
        parts = () if self._group is None else self._group.parts
        failed = None if self._group is None else self._group.first_failed
        ended = bool(parts) and all(part.return_code is not None for part in parts)
        codes = [] if failed is None else [failed.return_code]
        code = codes[0] if codes else max((part.return_code or 0 for part in parts), default=0) if ended else None
        return {
            **super().result(),
            "program": self._wish.program,
            "arguments": list(self._wish.arguments),
            "on": self._wish.on,
            "attempts": self._attempt,
            "exit_code": _exit_code(code),
            "signal": _signal(code),
            "failed_first": None if failed is None else failed.member.name,
            "tasks": {part.member.name: _of_part(part) for part in parts},
        }

    def _parts(self, folder: Path, mark: str) -> list[Part]:
        if self._wish.on == "chief":
            chief = chief_of(self.inventory)
            check_free("", chief.port, "the program as chief")
            self._warn_of_silent_roles()
            return [self._part(chief, folder, folder / FILES, mark, {"TF_CONFIG": chief_config(self.inventory)})]
        if not self.inventory.one_host:
            return self._remote_parts(folder)
        count = len(self.inventory.of_role("worker"))
        *ports, master = free_ports(count + 1)
        members = workers_of(self.inventory, ports)
        return [
            self._part(one, folder, folder / FILES / one.folder, mark, worker_variables(members, one, master))
            for one in members
        ]

    def _remote_parts(self, folder: Path) -> list[Part]:
        """A part for each worker's node. Raises ClusterError where one does not connect, Cancelled."""
        names = [task.name for task in self.inventory.of_role("worker")]
        host = self.inventory.task("coordinator", 0).host
        lead = self._lead = Lead(host, self.inventory.ports.programs, os.environ.get(TOKEN_VARIABLE, ""))
        processes = lead.gather(names, lambda: self.cancel.asked)
        self.cancel.check()
        members = workers_of(self.inventory, [processes[name].ports[0] for name in names])
        master = processes[names[0]].ports[1]
        parts = []
        for one in members:
            files = folder / FILES / one.folder
            files.mkdir(parents=True, exist_ok=True)
            variables = worker_variables(members, one, master)
            processes[one.name].begin(variables, self._wish.arguments, files)
            parts.append(Part(one, processes[one.name], self._heard(one, folder)))
        return parts

    def _heard(self, member: Member, folder: Path) -> "Heard":
        alone = self._wish.on == "chief"
        kept = BoundedLog(folder / ("output.log" if alone else f"{member.folder}.log"))
        shown = ShownOutput(self._show, "" if alone else f"{member.name}: ", bounded=self._wish.bounded)
        return Heard(kept, shown)

    def _part(self, member: Member, folder: Path, files: Path, mark: str, own: dict[str, str]) -> Part:
        program = Path(self._wish.program)
        files.mkdir(parents=True, exist_ok=True)
        gate = member.port if self.inventory.one_host else None
        environment = environment_of(os.environ, program, files.resolve(), mark, own)
        words = [self._wish.python or sys.executable, str(program), *self._wish.arguments]
        return Part(member, ProgramProcess(words, environment, files, gate), self._heard(member, folder))

    def _uses(self) -> dict[str, Usage]:
        return {} if self._group is None else {part.member.name: part.used for part in self._group.parts}

    def _note(self) -> None:
        """Now and then the latest line, for the page and the history."""
        now = time.monotonic()
        if self._latest and now - self._noted_at >= NOTED_SECONDS:
            self._noted_at = now
            self.stream.emit(events.Noted("output", self._latest[:LONGEST_TEXT]))
            self._latest = ""

    def _show(self, text: str, end: str) -> None:
        self._latest = text.strip() or self._latest
        if not self._quiet:
            say(text, error=True, end=end)

    def _warn_of_silent_roles(self) -> None:
        roles = {
            task.name: (task.host, task.port) for task in self.inventory.tasks() if task.role in ("ps", "worker")
        }  # fmt: skip
        silent = sorted(roles.keys() - answering(roles, ANSWER_SECONDS))
        if silent:
            log.warning(
                "%s: no answer, and TensorFlow waits for every role of TF_CONFIG; `fab deploy status` shows them",
                ", ".join(silent),
            )

    def _failure(self, part: Part, folder: Path, lost_a_server: Callable[[], object]) -> ClusterError:
        code, member = part.return_code or 0, part.member
        of = "" if self._wish.on == "chief" else f" on {member.name} (node {member.node})"
        words = f"{self._wish.name} ended with {_in_words(code)}{of}"
        if self._lead is not None and code == LOST:
            words = f"{self._wish.name}: the connection to {member.name} (node {member.node}) broke"
        path = _shown(part.hear.kept.path if isinstance(part.hear, Heard) else folder, self.inventory.one_host)
        if code == -Signals.SIGKILL:
            words += " (if it was not sent on purpose, look for out of memory in the kernel's log: dmesg)"
        may_restart = self._attempt <= self._wish.restarts
        if code < 0 and -code not in (Signals.SIGINT, Signals.SIGTERM, Signals.SIGILL) and may_restart:
            return ProgramKilled(words)
        if may_restart and lost_a_server():
            return ProgramLostServer(f"{words}; a parameter server was lost meanwhile, with the program's variables")
        return ProgramFailed(f"{words}; its output is in {path}{_hint(part)}")


class Heard:
    """Takes the output of one process: into its log, and to a person."""

    def __init__(self, kept: BoundedLog, shown: ShownOutput) -> None:
        self.kept, self.shown = kept, shown

    def __call__(self, piece: bytes) -> None:
        """Take what came; no bytes for its end."""
        if piece:
            self.kept.add(piece)
            self.shown.add(piece)
        else:
            self.shown.close()
            self.kept.close()


def _count_attempt(path: Path) -> int:
    try:
        before = int(path.read_text("ascii"))
    except (OSError, ValueError):
        before = 0
    path.write_text(f"{before + 1}\n", "ascii")
    return before + 1


def _restart(task: Task, seconds: float) -> None:
    with suppress(NoAnswerError):
        ask(task.metrics_address, "POST", "/restart", deadline_seconds=seconds, token=own_token())


def _process_of(task: Task, seconds: float) -> str:
    """Which process a role is; empty where it is not ready."""
    try:
        answer = ask(task.metrics_address, "GET", "/ready", deadline_seconds=seconds)
    except NoAnswerError:
        return ""
    return answer.headers.get(PROCESS_HEADER.lower(), "") if answer.status == 200 else ""


def _processes(inventory: Inventory) -> dict[str, str]:
    """Which process each parameter server is, by the header of its metrics port; empty where it does not say."""
    return {task.name: _process_of(task, ANSWER_SECONDS) for task in inventory.of_role("ps")}


def _of_part(part: Part) -> dict[str, Any]:
    return {
        "node": part.member.node,
        "address": part.member.address,
        "exit_code": _exit_code(part.return_code),
        "signal": _signal(part.return_code),
        "ended_by_us": part.asked,
        "elapsed_seconds": part.seconds,
        "cpu_seconds": part.used.cpu_seconds,
        "peak_memory_bytes": part.used.peak_bytes,
    }


def _exit_code(code: int | None) -> int | None:
    """As a shell has it: 128 and the number for a signal."""
    return code if code is None or code >= 0 else 128 - code


def _signal(code: int | None) -> str | None:
    return None if code is None or code >= 0 else _name(-code)


def _name(number: int) -> str:
    return Signals(number).name if number in {int(known) for known in Signals} else f"signal {number}"


def _in_words(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code} ({_name(-code)})"


def _shown(path: Path, here: bool) -> str:
    """A file of the run as the operator finds it; the run comes to them from the coordinator's node."""
    return os.path.relpath(path) if here else f"runs/{path.parent.name}/{path.name}"


def _hint(part: Part) -> str:
    tail = part.hear.shown.tail if isinstance(part.hear, Heard) else ""
    missing = _MISSING.findall(tail)
    if not missing:
        return ""
    package = missing[-1].partition(".")[0]
    why = " (Keras 2, which TF_USE_LEGACY_KERAS asks for)" if package == _NO_LEGACY_KERAS else ""
    return f"; {package}{why} is not installed: name its package in a file for --requirements"
