"""The job `run`: a person's own program, on the coordinator's node or once on each worker's node.

This process loads no TensorFlow: it stays beside the program on a node of 1 GB. It starts the
program, keeps what it prints, measures it, and ends it whole.
"""

import logging
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from signal import Signals
from typing import Any

from cluster.jobs.job_metrics import SELF
from cluster.jobs.lifecycle import Job, JobContext
from cluster.jobs.roles import RunAnnouncer
from cluster.jobs.run_folder import SPEAKER, RunFolder
from cluster.programs.group import (
    ANSWER_SECONDS,
    Group,
    GroupMember,
    describe_part,
    ending_in_words,
    exit_code,
    read_uses,
    server_processes,
    signal_name,
)
from cluster.programs.lead import LOST, Lead, RemoteProcess
from cluster.programs.output import BoundedLog, ShownOutput
from cluster.programs.process import ProgramProcess, Usage, end_marked
from cluster.programs.program import (
    TOKEN_VARIABLE,
    ProgramMember,
    ProgramRequest,
    chief_config,
    chief_of,
    environment_of,
    worker_variables,
    workers_of,
)
from core.control.role_restart import RestartPatience, restart_roles
from core.ground.accounts import account_for_roles
from core.ground.errors import ClusterError, ExitCode
from core.ground.ports import check_free, free_ports
from core.inventory import Task
from core.logs import say
from core.metrics.catalogue import ReadingsCollector
from core.server.sockets import answering
from core.status import events
from core.status.state import LONGEST_TEXT

log = logging.getLogger(__name__)

FILES = "files"
"""The working folder of the program, in the run's folder."""
ATTEMPTS = "attempts"
"""A file of the run: how often the program was begun."""
CLEAR_SECONDS = 15.0
"""The wait at a program's end for roles that restart."""
NOTED_SECONDS = 5.0
"""Time between two lines of the program in the events of the run."""
_MISSING = re.compile(r"^ModuleNotFoundError: No module named '([\w.]+)'", re.MULTILINE)
_NO_LEGACY_KERAS = "tf_keras"


class ProgramFailed(ClusterError):
    """The program ended with another code than 0, by itself."""


class ProgramKilled(ClusterError):
    """A signal that we did not send ended the program: another attempt can succeed."""

    exit_code = ExitCode.PROGRAM_KILLED


class ProgramLostServer(ClusterError):
    """The program failed and a parameter server was lost: another attempt can succeed."""

    exit_code = ExitCode.SERVER_LOST


class ProgramRun(Job):
    """One run of a program."""

    name = "run"

    def __init__(
        self, context: JobContext, request: ProgramRequest, *, quiet: bool = False
    ) -> None:
        super().__init__(context)
        self._request = request
        self._quiet = quiet
        self.metrics.registry.register(ReadingsCollector(SELF, lambda: read_uses(self._uses())))
        self._noted_at = 0.0
        self._latest = ""
        self._group: Group | None = None
        self._outputs: dict[str, Output] = {}
        self._lead: Lead | None = None
        self._attempt = 0

    def run(self, folder: RunFolder) -> None:
        """Run it to its end.

        Raises ClusterError unless it ends with 0, or because it was cancelled.
        """
        self.result_path = folder.result_path
        self._attempt = _count_attempt(folder.path / ATTEMPTS)
        if self._attempt > 1 + self._request.restarts:
            raise ProgramFailed(
                f"{self._request.name} is not started again: --restarts {self._request.restarts}"
            )
        mark = str(folder.path.resolve())
        end_marked(mark)  # of an attempt whose runner was killed
        self.metrics.serve(self.inventory.task("coordinator", 0))
        roles = [task for task in self.inventory.tasks() if task.role != "coordinator"]
        if self._request.on == "chief":
            servers = server_processes(self.inventory)
        else:
            servers = {}
        with RunAnnouncer(roles, SPEAKER.run, self.metrics.restarting):
            self.stream.emit(events.StageBegan("run"))
            try:
                self._group = Group(self._begun(folder.path, mark), lambda: self.cancel.asked)
                self._group.run(self._note)
            except BaseException:
                self._leave(last=True)
                raise
            finally:
                leftover_count = end_marked(mark)
            failed = self._group.first_failed
            # Before the end is announced: a role may restart then.
            lost_a_server = failed and servers and servers != server_processes(self.inventory)
            self._clear_roles(roles)
        if leftover_count:
            log.warning("%s left %d processes behind: ended", self._request.name, leftover_count)
        if failed is None:
            self._leave(last=True)
            return
        failure = self._failure(failed, bool(lost_a_server))
        self._leave(last=isinstance(failure, ProgramFailed))
        raise failure

    def _clear_roles(self, roles: Sequence[Task]) -> None:
        """Restart the roles where a chief could not take leave: its variables are still there."""
        if self._request.on != "chief" or all(
            (part.return_code or 0) >= 0 for part in self._members
        ):
            return
        log.info("restarting the roles: the program has left its variables there")
        addresses = {task.name: task.metrics_address for task in roles}
        with suppress(ClusterError):  # those that do not come are the next job's to report
            restart_roles(addresses, log.info, RestartPatience(CLEAR_SECONDS, CLEAR_SECONDS))

    def _leave(self, *, last: bool) -> None:
        """Hang up on the other nodes.

        Unless this is the `last` attempt, their runners wait for the next one.
        """
        if self._lead is not None:
            self._lead.close(last)
            self._lead = None

    def complete(self) -> bool:
        """Whether it ended by itself."""
        return self._group is not None and all(
            part.return_code is not None and not part.ended_by_us for part in self._members
        )

    def result(self) -> dict[str, Any]:
        """Return what there is so far. `exit_code` is the first failure's, or 0."""
        failed = None if self._group is None else self._group.first_failed
        code = None
        if failed is not None:
            code = failed.return_code
        elif self._members and all(part.return_code is not None for part in self._members):
            code = max(part.return_code or 0 for part in self._members)
        return {
            **super().result(),
            "program": self._request.program,
            "arguments": list(self._request.arguments),
            "on": self._request.on,
            "attempts": self._attempt,
            "exit_code": exit_code(code),
            "signal": signal_name(code),
            "failed_first": None if failed is None else failed.member.name,
            "tasks": {part.member.name: describe_part(part) for part in self._members},
        }

    @property
    def _members(self) -> tuple[GroupMember, ...]:
        """Its processes; none before it begins."""
        if self._group is None:
            return ()
        return self._group.members

    def _begun(self, folder: Path, mark: str) -> list[GroupMember]:
        """Start its processes. Raises ClusterError where one does not connect, Cancelled."""
        if self._request.on == "chief":
            chief = chief_of(self.inventory)
            check_free("", chief.port, "the program as chief")
            self._warn_of_silent_roles()
            variables = {"TF_CONFIG": chief_config(self.inventory)}
            return [self._local_member(chief, folder, folder / FILES, mark, variables)]
        hosts = {task.name: task.host for task in self.inventory.of_role("worker")}
        remote: Mapping[str, RemoteProcess] = {}
        if self.inventory.one_host:
            *ports, master = free_ports(len(hosts) + 1)
        else:
            remote = self._gathered(hosts)
            ports = [remote[name].ports[0] for name in hosts]
            master = remote[next(iter(hosts))].ports[1]
        members = workers_of(self.inventory, ports)
        group_members = []
        for member in members:
            files = folder / FILES / member.folder
            variables = worker_variables(members, member, master)
            if not remote:
                group_members.append(self._local_member(member, folder, files, mark, variables))
                continue
            files.mkdir(parents=True, exist_ok=True)
            process = remote[member.name]
            process.begin(variables, self._request.arguments, files)
            group_members.append(GroupMember(member, process, self._output(member, folder)))
        return group_members

    def _gathered(self, hosts: Mapping[str, str]) -> Mapping[str, RemoteProcess]:
        """Return the process of each worker's node, once their runners have connected."""
        lead = self._lead = Lead(
            self.inventory.task("coordinator", 0).host,
            self.inventory.ports.programs,
            os.environ.get(TOKEN_VARIABLE, ""),
            hosts,
        )
        processes = lead.gather(list(hosts), lambda: self.cancel.asked)
        self.cancel.check()
        return processes

    def _output(self, member: ProgramMember, folder: Path) -> "Output":
        if self._request.on == "chief":
            log_name, prefix = "output.log", ""
        else:
            log_name, prefix = f"{member.folder}.log", f"{member.name}: "
        display = ShownOutput(self._show, prefix, bounded=self._request.bounded)
        output = self._outputs[member.name] = Output(BoundedLog(folder / log_name), display)
        return output

    def _local_member(
        self, member: ProgramMember, folder: Path, files: Path, mark: str, variables: dict[str, str]
    ) -> GroupMember:
        program = Path(self._request.program)
        files.mkdir(parents=True, exist_ok=True)
        gate = servers = None
        if self.inventory.one_host:
            gate = member.port
            if self._request.on == "chief":
                servers = account_for_roles()
        python = self._request.python or sys.executable
        environment = environment_of(os.environ, program, files.resolve(), mark, variables, python)
        command = [python, str(program), *self._request.arguments]
        process = ProgramProcess(command, environment, files, gate, servers)
        return GroupMember(member, process, self._output(member, folder))

    def _uses(self) -> dict[str, Usage]:
        return {part.member.name: part.used for part in self._members}

    def _note(self) -> None:
        """Emit the latest line now and then, for the page and the history."""
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
            task.name: (task.host, task.port)
            for task in self.inventory.tasks()
            if task.role in ("ps", "worker")
        }
        silent = sorted(roles.keys() - answering(roles, ANSWER_SECONDS))
        if silent:
            log.warning(
                "%s: no answer, and TensorFlow waits for every role of TF_CONFIG; `fab deploy"
                " status` shows them",
                ", ".join(silent),
            )

    def _failure(self, part: GroupMember, lost_a_server: bool) -> ClusterError:
        code = part.return_code or 0
        member = part.member
        member_name = f"{member.name} (node {member.node})"
        message = f"{self._request.name} ended with {ending_in_words(code)}"
        if self._lead is not None and code == LOST:
            message = f"{self._request.name}: the connection to {member_name} broke"
        elif self._request.on != "chief":
            message = f"{message} on {member_name}"
        output = self._outputs[member.name]
        path = _operator_path(output.output_log.path, self.inventory.one_host)
        if code == -Signals.SIGKILL:
            message += (
                " (if it was not sent on purpose, look for out of memory in the kernel's log:"
                " dmesg)"
            )
        may_restart = self._attempt <= self._request.restarts
        if (
            code < 0
            and -code not in (Signals.SIGINT, Signals.SIGTERM, Signals.SIGILL)
            and may_restart
        ):
            return ProgramKilled(message)
        if may_restart and lost_a_server:
            return ProgramLostServer(
                f"{message}; a parameter server was lost meanwhile, with the program's variables"
            )
        return ProgramFailed(f"{message}; its output is in {path}{_hint(output.display.tail)}")


class Output:
    """Takes the output of one process: into its log, and to a person."""

    def __init__(self, output_log: BoundedLog, display: ShownOutput) -> None:
        self.output_log = output_log
        self.display = display

    def __call__(self, piece: bytes) -> None:
        """Take what came; no bytes for its end."""
        if piece:
            self.output_log.add(piece)
            self.display.add(piece)
        else:
            self.display.close()
            self.output_log.close()


def _count_attempt(path: Path) -> int:
    try:
        before = int(path.read_text("ascii"))
    except (OSError, ValueError):
        before = 0
    path.write_text(f"{before + 1}\n", "ascii")
    return before + 1


def _operator_path(path: Path, one_host: bool) -> str:
    """Return a file of the run as the operator finds it, who gets the run from its node."""
    if one_host:
        return os.path.relpath(path)
    return f"runs/{path.parent.name}/{path.name}"


def _hint(tail: str) -> str:
    missing = _MISSING.findall(tail)
    if not missing:
        return ""
    package = missing[-1].partition(".")[0]
    if package == _NO_LEGACY_KERAS:
        package = f"{package} (Keras 2, which TF_USE_LEGACY_KERAS asks for)"
    return f"; {package} is not installed: name its package in a file for --requirements"
