"""The process on the coordinator's node that leads a program on all workers' nodes: it starts, hears and ends them.

No node can log in on another. So each worker's node runs `cluster.programs.runner`, which connects here, shows the
token of the job, and then does what it is asked.
"""

import hmac
import logging
import selectors
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from signal import Signals
from typing import Any

from cluster.errors import ClusterError
from cluster.programs.files import FileTaker, send_files
from cluster.programs.frames import RECEIVE_BYTES, Frames, Kind, ProtocolError, keep_alive, said, send, whole_number
from cluster.programs.process import Usage
from cluster.server.sockets import explain

log = logging.getLogger(__name__)

JOIN_SECONDS = 180.0
"""For every node to unpack the program and connect; a Pi with a cold card takes a while."""
HELLO_SECONDS = 10.0
BRING_SECONDS = 60.0
"""For each piece of a file on its way to a node."""
SAY_SECONDS = 15.0
"""After that a person reads who is waited for."""
LOST = -int(Signals.SIGHUP)
"""Return code of a program whose node hung up."""


class RemoteProcess:
    """A program's process on another node; see `group.Running`."""

    def __init__(self, connection: socket.socket, ports: tuple[int, int], frames: Frames, whose: str = "") -> None:
        """`whose` files the node has."""
        self._connection, self.ports, self._whose = connection, ports, whose
        self._frames = frames
        self._code: int | None = None
        self._used = Usage()
        self._files: FileTaker | None = None
        self._files_are_lost = False
        connection.setblocking(False)

    def begin(self, variables: Mapping[str, str], arguments: Sequence[str], files: Path) -> None:
        """Start it, once the one before has ended; what it leaves goes into the folder `files` here. Raises OSError."""
        self.close()
        self._files, self._files_are_lost = FileTaker(files), False
        self._code, self._used = None, Usage()
        self._send(Kind.START, {"variables": dict(variables), "arguments": list(arguments)})

    def bring(self, whose: str, folder: Path) -> None:
        """Have the files of `whose` there for the next process: those it has, else the ones of `folder`.

        Raises OSError.
        """
        self._send(Kind.WHOSE, {"name": whose})
        if self._whose == whose:
            return
        self._whose = whose
        self._connection.settimeout(BRING_SECONDS)
        try:
            send_files(self._connection, folder)
        finally:
            self._connection.setblocking(False)

    @property
    def is_lost(self) -> bool:
        """Whether the node hung up."""
        return self._code == LOST

    def fileno(self) -> int:
        """See `Running`."""
        return self._connection.fileno()

    def read(self) -> bytes | None:
        """See `Running`."""
        try:
            piece = self._connection.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            piece = b""
        if not piece:
            return self._hung_up()
        output = bytearray()
        try:
            for kind, content in self._frames.add(piece):
                if kind is Kind.OUTPUT:
                    output += content
                elif kind in (Kind.FILE, Kind.BYTES):
                    output += self._take_file(kind, content)
                else:
                    self._take(kind, content)
        except ProtocolError:
            return self._hung_up()
        return bytes(output) or None

    def _hung_up(self) -> bytes:
        if self._code is None:
            self._code = LOST
        return b""

    def _take(self, kind: Kind, content: bytes) -> None:
        if kind is Kind.USAGE:
            found = said(content)
            cpu = whole_number(found, "cpu_milliseconds", 0, 1 << 50)
            sizes = [whole_number(found, name, 0, 1 << 50) for name in ("memory_bytes", "peak_bytes", "processes")]
            self._used = Usage(cpu / 1000, *sizes)
        elif kind is Kind.ENDED:
            self._code = whole_number(said(content), "return_code", -64, 255)
        else:
            raise ProtocolError(f"a frame of kind {kind}")

    def _take_file(self, kind: Kind, content: bytes) -> bytes:
        """A line for the log where the disk here takes no more: that costs files, and not the program."""
        if self._files is None:
            raise ProtocolError("a file before the program")
        if self._files_are_lost:
            return b""
        try:
            if kind is Kind.FILE:
                self._files.begin(said(content))
            else:
                self._files.add(content)
        except OSError as problem:
            self._files_are_lost = True
            self._files.close()
            return f"its files are not all here: {self._files.folder}: {problem.strerror}\n".encode(errors="replace")
        return b""

    def poll(self) -> int | None:
        """See `Running`."""
        return self._code

    def ask(self, number: Signals) -> None:
        """See `Running`."""
        with suppress(OSError):
            self._send(Kind.ASK, {"signal": int(number)})

    def use(self) -> Usage:
        """See `Running`."""
        return self._used

    def close(self) -> None:
        """See `Running`: its runner ends it when `Lead` hangs up."""
        if self._files is not None:
            self._files.close()

    def hang_up(self) -> None:
        """Count it as lost: nothing can be sent to it."""
        self._hung_up()

    def leave(self, last: bool) -> None:
        """Hang up; with `last` its runner ends too, else it comes back for the next attempt."""
        with suppress(OSError):
            if last:
                self._send(Kind.BYE, {})
        self._connection.close()

    def _send(self, kind: Kind, content: dict[str, Any]) -> None:
        self._connection.settimeout(HELLO_SECONDS)
        try:
            send(self._connection, kind, content)
        finally:
            self._connection.setblocking(False)


class Lead:
    """Waits for the runner of each member, and gives each of them as a `RemoteProcess`."""

    def __init__(self, host: str, port: int, token: str) -> None:
        """Listen. Raises ClusterError where the port is taken, and for an empty token, which anybody has."""
        if not token:
            raise ClusterError("--on workers: expected the token of the job, got none: begin it with `fab job run`")
        self._token = token
        self.processes: dict[str, RemoteProcess] = {}
        try:
            self._listener = socket.create_server((host, port), backlog=128)
        except OSError as problem:
            raise explain(problem, host, port, "the lead of a program") from None
        self.port: int = self._listener.getsockname()[1]

    def gather(
        self, names: Sequence[str], give_up: Callable[[], bool], seconds: float = JOIN_SECONDS
    ) -> Mapping[str, RemoteProcess]:
        """The processes by name, once all have connected. Raises ClusterError that names those that did not.

        It returns those that there are when `give_up()`.
        """
        end, say_at = time.monotonic() + seconds, time.monotonic() + min(SAY_SECONDS, seconds / 2)
        waiting: dict[socket.socket, tuple[Frames, float]] = {}
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            try:
                while len(self.processes) < len(names) and not give_up():
                    missing = ", ".join(name for name in names if name not in self.processes)
                    if time.monotonic() > say_at:
                        log.warning("waiting for %s to connect, at most %.0f s in all", missing, seconds)
                        say_at = float("inf")
                    if time.monotonic() > end:
                        raise ClusterError(
                            f"{missing}: no runner connected within {seconds:.0f} s: is the node up? "
                            "`fab deploy status` shows it, `journalctl -u 'pscluster-job@*'` there says why"
                        )
                    for key, _ in selector.select(0.25):
                        if key.fileobj is self._listener:
                            self._accept(selector, waiting)
                        elif isinstance(key.fileobj, socket.socket):
                            self._hear(selector, waiting, key.fileobj, names)
                    for one in [one for one, (_, until) in waiting.items() if time.monotonic() > until]:
                        self._refuse(selector, waiting, one)
            finally:
                for one in list(waiting):
                    self._refuse(selector, waiting, one)
        return self.processes

    def _accept(self, selector: selectors.BaseSelector, waiting: dict[socket.socket, tuple[Frames, float]]) -> None:
        connection, _ = self._listener.accept()
        connection.setblocking(False)
        keep_alive(connection)
        if len(waiting) >= 256:
            connection.close()
            return
        waiting[connection] = (Frames(), time.monotonic() + HELLO_SECONDS)
        selector.register(connection, selectors.EVENT_READ)

    def _hear(
        self, selector: selectors.BaseSelector, waiting: dict[socket.socket, tuple[Frames, float]],
        connection: socket.socket, names: Sequence[str],
    ) -> None:  # fmt: skip
        frames, _ = waiting[connection]
        try:
            piece = connection.recv(4096)
            if not piece:
                raise ProtocolError("it hung up")
            for kind, content in frames.add(piece):
                hello = said(content)
                name = str(hello.get("member"))
                shown = str(hello.get("token")).encode(errors="replace")
                if kind is not Kind.HELLO or not hmac.compare_digest(shown, self._token.encode()):
                    raise ProtocolError("not a runner of this job")
                if name not in names or name in self.processes:
                    raise ProtocolError("another member")
                ports = (whole_number(hello, "port", 1, 65535), whole_number(hello, "second_port", 1, 65535))
                selector.unregister(connection)
                del waiting[connection]
                self.processes[name] = RemoteProcess(connection, ports, frames, str(hello.get("whose", "")))
                return
        except BlockingIOError:
            return
        except (ProtocolError, OSError):
            self._refuse(selector, waiting, connection)

    @staticmethod
    def _refuse(
        selector: selectors.BaseSelector, waiting: dict[socket.socket, tuple[Frames, float]], connection: socket.socket
    ) -> None:
        selector.unregister(connection)
        del waiting[connection]
        connection.close()

    def close(self, last: bool) -> None:
        """Hang up on all; with `last` their runners end."""
        for process in self.processes.values():
            process.leave(last)
        self._listener.close()
