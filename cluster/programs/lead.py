"""The process that leads a program on all workers' nodes: it starts, reads and ends them.

No node can log in on another. So each worker's node runs `cluster.programs.runner`, which connects
here, proves that it knows its own key, as this then does, and does what it is asked.
"""

import logging
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from signal import Signals

from cluster.programs.frames import (
    MOST_BYTES,
    MOST_FILE_BYTES,
    Channel,
    FileTaker,
    FrameType,
    ProtocolError,
    frame_object,
    keep_alive,
    key_of_runner,
    proof_of_lead,
    proof_of_runner,
    send_files,
    whole_number,
)
from cluster.programs.process import ProgramProcess, Usage
from core.control.client import same
from core.ground.addresses import plain_address
from core.ground.errors import ClusterError
from core.ground.ports import port_refusal

log = logging.getLogger(__name__)

JOIN_SECONDS = 180.0
"""Time for every node to unpack the program and connect; a Pi with a cold card takes a while."""
HELLO_SECONDS = 10.0
HELLO_BYTES = 4096
MOST_WAITING = 256
"""Connections that have not yet said which runner they are."""
BRING_SECONDS = 60.0
"""Time for each piece of a file on its way to a node."""
SAY_SECONDS = 15.0
"""Time after which a person reads who is waited for."""
LOST = -int(Signals.SIGHUP)
"""Return code of a program whose node hung up."""


class RemoteProcess:
    """A program's process on another node, with what a `ProgramProcess` has for one here."""

    def __init__(self, channel: Channel, ports: tuple[int, int], owner: str = "") -> None:
        """The node has files of `owner`."""
        self._channel = channel
        self.ports = ports
        self._owner = owner
        self._code: int | None = None
        self.is_lost = False
        """Whether the node hung up."""
        self._used = Usage()
        self._files: FileTaker | None = None
        self._files_are_lost = False

    def begin(
        self,
        variables: Mapping[str, str],
        arguments: Sequence[str],
        files: Path,
        limit_of: Callable[[Sequence[str]], int] = lambda path_segments: MOST_FILE_BYTES,
    ) -> None:
        """Start it, once the one before has ended; its files go into `files` here. Raises OSError.

        `limit_of`: see `FileTaker`.
        """
        self.close()
        self._files = FileTaker(files, limit_of)
        self._files_are_lost = False
        self._code = None
        self._used = Usage()
        order = {"variables": dict(variables), "arguments": list(arguments)}
        self._channel.send(FrameType.START, order)

    def bring(self, owner: str, folder: Path) -> None:
        """Have the files of `owner` there for the next process: its own, or the ones of `folder`.

        Raises OSError.
        """
        self._channel.send(FrameType.WHOSE, {"name": owner})
        if self._owner != owner:
            self._owner = owner
            send_files(self._channel, folder, seconds=BRING_SECONDS)

    def fileno(self) -> int:
        """Return what a selector waits for."""
        return self._channel.fileno()

    def read_output(self) -> bytes | None:
        """Return what it printed since; None where nothing waits, no bytes at the end."""
        output = bytearray()
        try:
            for kind, content in self._channel.received():
                if kind is FrameType.OUTPUT:
                    output += content
                elif kind in (FrameType.FILE, FrameType.BYTES):
                    output += self._take_file(kind, content)
                else:
                    self._note(kind, content)
        except (OSError, ProtocolError):
            self.hang_up()
            return b""
        return bytes(output) or None

    def notice_hang_up(self) -> None:
        """Notice between two programs that the node hung up: then only its end is to be read."""
        if self._files is None or self._code is not None:
            self.read_output()

    def _note(self, kind: FrameType, content: bytes) -> None:
        if kind is FrameType.USAGE:
            usage = frame_object(content)
            cpu = whole_number(usage, "cpu_milliseconds", 0, 1 << 50)
            sizes = [
                whole_number(usage, name, 0, 1 << 50)
                for name in ("memory_bytes", "peak_bytes", "processes")
            ]
            self._used = Usage(cpu / 1000, *sizes)
        elif kind is FrameType.ENDED:
            self._code = whole_number(frame_object(content), "return_code", -64, 255)
        else:
            raise ProtocolError(f"a frame of kind {kind}")

    def _take_file(self, kind: FrameType, content: bytes) -> bytes:
        """Take a part of a file; return a line for the log where the disk here takes no more.

        That costs files, and not the program. Raises ProtocolError for a file before the program.
        """
        if self._files is None:
            raise ProtocolError("a file before the program")
        if self._files_are_lost:
            return b""
        try:
            if kind is FrameType.FILE:
                self._files.begin(frame_object(content))
            else:
                self._files.add(content)
        except OSError as problem:
            self._files_are_lost = True
            self._files.close()
            return f"its files are not all here: {self._files.folder}: {problem.strerror}\n".encode(
                errors="replace"
            )
        return b""

    def poll(self) -> int | None:
        """Return its return code, negative for a signal; None while it runs."""
        return self._code

    def ask(self, number: Signals) -> None:
        """Send it a signal."""
        with suppress(OSError):
            self._channel.send(FrameType.ASK, {"signal": int(number)})

    def use(self) -> Usage:
        """Return what it uses."""
        return self._used

    def close(self) -> None:
        """Close its files here; its runner ends it when `Lead` hangs up."""
        if self._files is not None:
            self._files.close()

    def hang_up(self) -> None:
        """Count it as lost: nothing can be sent to it."""
        self.is_lost = True
        if self._code is None:
            self._code = LOST

    def leave(self, last: bool) -> None:
        """Hang up; with `last` its runner ends too, else it comes back for the next attempt."""
        with suppress(OSError):
            if last:
                self._channel.send(FrameType.BYE, {})
        self._channel.close()


RunningProcess = ProgramProcess | RemoteProcess
"""A process of a program, here or on another node."""


class Lead:
    """Waits for the runner of each member, and gives each of them as a `RemoteProcess`."""

    def __init__(self, host: str, port: int, token: str, hosts: Mapping[str, str]) -> None:
        """Listen. `hosts` has the inventory's address or host name of each member's node.

        Raises ClusterError where the port is taken, and for an empty token, which anybody has.
        """
        if not token:
            raise ClusterError(
                "--on workers: expected the token of the job, got none: begin it with `fab job run`"
            )
        self._token = token
        self._hosts = hosts
        self.processes: dict[str, RemoteProcess] = {}
        self._elsewhere: set[str] = set()
        """Members whose key came from another machine than their node."""
        try:
            self._listener = socket.create_server((host, port), backlog=128)
        except OSError as problem:
            raise port_refusal(problem, host, port, "the lead of a program") from None
        self.port: int = self._listener.getsockname()[1]

    def gather(
        self, names: Sequence[str], give_up: Callable[[], bool], seconds: float = JOIN_SECONDS
    ) -> Mapping[str, RemoteProcess]:
        """The processes by name, once all have connected.

        Raises ClusterError that names those that did not.

        It returns those that there are when `give_up()`.
        """
        end = time.monotonic() + seconds
        say_at = time.monotonic() + min(SAY_SECONDS, seconds / 2)
        newcomers: dict[int, _Newcomer] = {}
        try:
            while len(self.processes) < len(names) and not give_up():
                missing = ", ".join(name for name in names if name not in self.processes)
                if time.monotonic() > say_at:
                    log.warning(
                        "waiting for %s to connect, at most %.0f s in all", missing, seconds
                    )
                    say_at = float("inf")
                if time.monotonic() > end:
                    raise ClusterError(
                        f"{missing}: no runner connected within {seconds:.0f} s: is the node"
                        " up? `fab deploy status` shows it, `journalctl -u 'pscluster-job@*'`"
                        " there says why"
                    )
                ready = wait([self._listener, *newcomers], 0.25)
                for descriptor, newcomer in [*newcomers.items()]:
                    is_late = time.monotonic() > newcomer.until
                    if is_late or (descriptor in ready and not self._waits(newcomer, names)):
                        newcomers.pop(descriptor).refuse()
                if self._listener in ready:
                    self._accept(newcomers)
        finally:
            for newcomer in newcomers.values():
                newcomer.refuse()
        return self.processes

    def _accept(self, newcomers: "dict[int, _Newcomer]") -> None:
        connection, _ = self._listener.accept()
        keep_alive(connection)
        if len(newcomers) >= MOST_WAITING:  # a runner speaks at once: the oldest is none
            newcomers.pop(next(iter(newcomers))).refuse()
        newcomers[connection.fileno()] = _Newcomer(Channel(connection, HELLO_BYTES))

    def _waits(self, newcomer: "_Newcomer", names: Sequence[str]) -> bool:
        """Return whether it has yet to say which runner it is; one that did becomes a process."""
        channel = newcomer.channel
        try:
            for kind, content in channel.received():
                hello = frame_object(content)
                name = str(hello.get("member"))
                nonce = str(hello.get("nonce"))
                member_key = key_of_runner(self._token, name)
                address = channel.socket.getpeername()[0]
                expected = proof_of_runner(member_key, name, nonce, address)
                if kind is not FrameType.HELLO or not same(str(hello.get("proof")), expected):
                    raise ProtocolError("not a runner of this job")
                if name not in names or name in self.processes:
                    raise ProtocolError("another member")
                self._check_address(name, address)
                ports = (
                    whole_number(hello, "port", 1, 65535),
                    whole_number(hello, "second_port", 1, 65535),
                )
                channel.send(FrameType.PROVEN, {"proof": proof_of_lead(member_key, nonce)})
                channel.most_bytes = MOST_BYTES
                self.processes[name] = RemoteProcess(channel, ports, str(hello.get("whose", "")))
                newcomer.is_member = True
                return False
        except (ProtocolError, OSError):
            return False
        return True

    def _check_address(self, name: str, address: str) -> None:
        """Raise ProtocolError where another machine than its node has a key; one line reports it.

        Raises OSError where the node's host name has no address now.
        """
        expected = socket.gethostbyname(self._hosts[name])
        if plain_address(address) == plain_address(expected):
            return
        if name not in self._elsewhere:
            self._elsewhere.add(name)
            log.warning(
                "a runner with the key of %s connected from %s, expected %s, which the inventory"
                " names, and was refused: if its node has both, make the first one its `address`",
                name,
                address,
                expected,
            )
        raise ProtocolError("another machine")

    def close(self, last: bool) -> None:
        """Hang up on all; with `last` their runners end."""
        for process in self.processes.values():
            process.leave(last)
        self._listener.close()


@dataclass
class _Newcomer:
    """A connection that has not yet said which runner it is."""

    channel: Channel
    until: float = field(default_factory=lambda: time.monotonic() + HELLO_SECONDS)
    is_member: bool = False

    def refuse(self) -> None:
        if not self.is_member:
            self.channel.close()
