"""What runs a program on a worker's node: it connects to the lead and starts it when asked."""

import os
import selectors
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from shutil import rmtree
from signal import Signals

from cluster.programs.frames import (
    Channel,
    FileTaker,
    FrameType,
    ProtocolError,
    SentFiles,
    frame_object,
    greeting,
    keep_alive,
    proof_of_lead,
    send_files,
)
from cluster.programs.process import ProgramProcess, end_marked, read_rest
from cluster.programs.program import environment_of, environment_of_ours
from core.cage.landlock import Cage
from core.control.client import same
from core.ground.errors import ClusterError
from core.ground.ports import free_of
from core.ground.waiting import pause

CONNECT_SECONDS = 180.0
"""Time to look for the lead: another attempt of a program begins within a minute."""
PROOF_SECONDS = 1800.0
"""Time for what has the lead's port to prove that it is the lead: a busy one first takes the files
of the others. Afterwards it is another program's."""
_PAUSE_SECONDS = 0.5
_USE_SECONDS = 2.0
LONGEST_NAME = 100
SEND_SECONDS = 60.0
"""Time between two looks for changed files: about as often as a training writes a checkpoint."""


@dataclass(frozen=True)
class RunnerTask:
    """Which member of which program this is: the lead's address, this member's key, ports to try.

    `program` is the file to run, `files` its working folder. With `module`, one of ours is run
    instead, as often as the lead asks. Each process enters `cage` first.
    """

    lead: tuple[str, int]
    key: str
    member: str
    ports: Sequence[int]
    program: Path
    files: Path
    python: str = ""
    module: str = ""
    cage: Cage | None = None


def run(
    task: RunnerTask,
    connect_seconds: float = CONNECT_SECONDS,
    proof_seconds: float = PROOF_SECONDS,
) -> None:
    """Serve the lead until it says that all is over.

    Raises ClusterError where nothing has listened for `connect_seconds`, and where nothing has
    proven to be the lead for `proof_seconds`. Main thread only.
    """
    until = time.monotonic() + connect_seconds
    proof_until = time.monotonic() + proof_seconds
    while True:
        problem = (
            "no proof of this program's key: another program has its port, or the lead is busy"
        )
        try:
            with socket.create_connection(task.lead, timeout=5.0) as connection:
                served = _LeadConnection(task, connection)
                if served.serve(proof_until):
                    return
                until = time.monotonic() + connect_seconds
                if served.is_proven:
                    proof_until = time.monotonic() + proof_seconds
        except OSError as error:
            problem = f"{error}: it has ended, or its node cannot be reached"
        if time.monotonic() > min(until, proof_until):
            raise ClusterError(
                f"{task.lead[0]}:{task.lead[1]}: expected the lead of the program, got {problem}"
            )
        pause(_PAUSE_SECONDS)


def two_free(ports: Sequence[int]) -> tuple[int, int]:
    """The first two of the ports that nothing has. Raises ClusterError."""
    free_ports = [*islice(free_of(ports), 2)]
    if len(free_ports) < 2:
        raise ClusterError(
            f"expected two free ports of {min(ports, default=0)} to {max(ports, default=0)} for the"
            f" program, found {len(free_ports)}: `ports.programs` of the inventory names another"
            " range"
        )
    return free_ports[0], free_ports[1]


class _LeadConnection:
    """One connection to the lead."""

    def __init__(self, task: RunnerTask, connection: socket.socket) -> None:
        self._task = task
        self._channel = Channel(connection)
        self._process: ProgramProcess | None = None
        self._used_at = 0.0
        self._files = FileTaker(task.files)
        self._expected_proof = ""
        self.is_proven = False
        """Whether the other end is the lead of this program: it has given its proof."""
        self._expected_owner = ""
        """The owner of files on their way."""
        self._sent: SentFiles = {}
        self._sent_at = time.monotonic()
        self._mark = str(task.files.resolve())

    @property
    def _marker(self) -> Path:
        """Names whose files are in the folder, also after this process was killed."""
        return self._task.files.with_name(f"{self._task.files.name}.whose")

    @property
    def _owner(self) -> str:
        try:
            return self._marker.read_text()[:LONGEST_NAME]
        except (OSError, ValueError):
            return ""

    def serve(self, until: float) -> bool:
        """Return whether the lead says that all is over.

        Else the connection broke, or nothing was proven `until` then, by the monotonic clock.
        """
        keep_alive(self._channel.socket)
        port, second = two_free(self._task.ports)
        try:
            ports = {"port": port, "second_port": second}
            hello = greeting(self._channel.socket, self._task.key, self._task.member)
            self._expected_proof = proof_of_lead(self._task.key, hello["nonce"])
            self._channel.send(FrameType.HELLO, {**hello, "whose": self._owner, **ports})
            return self._listen(until)
        except (OSError, ProtocolError):
            return False
        finally:
            self._end()

    def _listen(self, until: float) -> bool:
        with selectors.DefaultSelector() as selector:
            selector.register(self._channel, selectors.EVENT_READ)
            while self.is_proven or time.monotonic() < until:
                for key, _ in selector.select(0.1):
                    if key.fileobj is self._channel:
                        before = self._process
                        if self._obey():
                            return True
                        if self._process is not None and before is None:
                            selector.register(self._process.fileno(), selectors.EVENT_READ)
                    elif self._process is not None and self._pass_on() == b"":
                        selector.unregister(key.fileobj)
                if self._process is not None:
                    self._measure()
                    self._send_changed()
                    code = self._process.poll()
                    if code is not None:
                        if self._process.fileno() in selector.get_map():
                            selector.unregister(self._process.fileno())
                        self._report(code)
        return False

    def _obey(self) -> bool:
        """Return whether the lead takes leave. Raises ProtocolError where the connection broke."""
        for kind, content in self._channel.received():
            if not self.is_proven:
                self._prove(kind, content)
                continue
            if kind is FrameType.BYE:
                return True
            if kind in (FrameType.FILE, FrameType.BYTES, FrameType.WHOSE) and self._process is None:
                self._take_file(kind, content)
            if kind is FrameType.START and self._process is None:
                self._begin(content)
            elif kind is FrameType.ASK and self._process is not None:
                number = frame_object(content).get("signal")
                if number in (Signals.SIGINT, Signals.SIGTERM, Signals.SIGKILL):
                    self._process.ask(Signals(number))
        return False

    def _prove(self, kind: FrameType, content: bytes) -> None:
        """Raise ProtocolError unless it is the lead that speaks: what it says is executed here."""
        if kind is not FrameType.PROVEN or not same(
            str(frame_object(content).get("proof")), self._expected_proof
        ):
            raise ProtocolError("not the lead of this job")
        self.is_proven = True

    def _take_file(self, kind: FrameType, content: bytes) -> None:
        """A file for the next process, from the lead, or whose files those will be."""
        if kind is FrameType.WHOSE:
            owner = str(frame_object(content).get("name", ""))[:LONGEST_NAME]
            if owner != self._owner:
                # Until all are here they belong to no run: a killed runner would take half of them
                # for the whole.
                self._marker.unlink(missing_ok=True)
                rmtree(self._task.files, ignore_errors=True)
                self._files = FileTaker(self._task.files)
                self._expected_owner = owner
        elif kind is FrameType.FILE:
            self._files.begin(frame_object(content))
        else:
            self._files.add(content)

    def _begin(self, content: bytes) -> None:
        self._files.close()
        self._files = FileTaker(self._task.files)
        if self._expected_owner:
            self._marker.write_text(self._expected_owner)
            self._expected_owner = ""
        order = frame_object(content)
        variables = {
            str(name): str(value) for name, value in dict(order.get("variables", {})).items()
        }
        arguments = [str(word) for word in order.get("arguments", [])]
        task = self._task
        task.files.mkdir(parents=True, exist_ok=True)
        if task.module:
            environment = environment_of_ours(os.environ, self._mark)
            command = [task.python or sys.executable, "-m", task.module, *arguments]
        else:
            python = task.python or sys.executable
            environment = environment_of(
                os.environ, task.program, task.files, self._mark, variables, python
            )
            command = [python, str(task.program), *arguments]
        try:
            self._process = ProgramProcess(command, environment, task.files, cage=task.cage)
        except ClusterError as problem:
            self._channel.send(FrameType.OUTPUT, f"{problem}\n".encode())
            self._channel.send(FrameType.ENDED, {"return_code": 126})

    def _pass_on(self) -> bytes | None:
        assert self._process is not None
        piece = self._process.read_output()
        if piece:
            self._channel.send(FrameType.OUTPUT, piece)
        return piece

    def _measure(self) -> None:
        if time.monotonic() - self._used_at >= _USE_SECONDS:
            self._used_at = time.monotonic()
            self._send_usage()

    def _send_changed(self) -> None:
        """Send a training's checkpoints so far, for the case that this node is lost."""
        if self._task.module and time.monotonic() - self._sent_at >= SEND_SECONDS:
            send_files(self._channel, self._task.files, self._sent)
            self._sent_at = time.monotonic()

    def _send_usage(self) -> None:
        assert self._process is not None
        used = self._process.use()
        self._channel.send(
            FrameType.USAGE,
            {
                "cpu_milliseconds": round(1000 * used.cpu_seconds),
                "memory_bytes": used.memory_bytes,
                "peak_bytes": used.peak_bytes,
                "processes": used.processes,
            },
        )

    def _report(self, code: int) -> None:
        """Send what is left of the output, the files, and last of all the end."""
        read_rest(self._pass_on)
        self._send_usage()
        end_marked(self._mark)
        left_out = send_files(
            self._channel, self._task.files, self._sent if self._task.module else None
        )
        if left_out:
            message = (
                f"{left_out} files are only on this node, in {self._task.files}: more than a run"
                " takes\n"
            )
            self._channel.send(FrameType.OUTPUT, message.encode())
        assert self._process is not None
        self._process.close()
        self._process = None
        self._channel.send(FrameType.ENDED, {"return_code": code})

    def _end(self) -> None:
        self._files.close()
        if self._process is not None:
            self._process.close()
            self._process = None
        end_marked(self._mark)
