"""The supervisor's unix socket and its client: one JSON object a line both ways.

`{"verb": "status"}` answers `{"ok": true, ...}`; what cannot be done answers `{"ok": false,
"error": "..."}`. `{"verb": "watch"}` answers with the status now and again after every change,
until the client hangs up.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from core.control.client import SupervisorConnection
from core.control.door import RateLimitedLog
from core.ground.errors import ClusterError
from core.ground.files import parsed_json
from deploy.cluster.services import ClusterStatus

_LAST_ANSWERS_SECONDS = 2.0
MOST_CONNECTIONS = 64
"""One over it is closed at once: only the account itself and root can connect."""
REQUEST_SECONDS = 10.0
"""Time for a line to be complete, from the connection or the answer before."""

log = logging.getLogger(__name__)

Answer = Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]


class ControlServer:
    """Serves `answer` and the changing `status` on `path`."""

    def __init__(self, path: Path, answer: Answer, status: Callable[[], ClusterStatus]) -> None:
        self._path = path
        self._answer = answer
        self._status = status
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._watchers: set[asyncio.Event] = set()
        self._full = RateLimitedLog(log)
        self._answering = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def open(self) -> None:
        """Bind the socket; a file left by a dead supervisor makes way."""
        self._path.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._connected, self._path)
        self._path.chmod(0o600)

    def changed(self) -> None:
        """Notify the watchers of a changed role."""
        for watcher in self._watchers:
            watcher.set()

    async def close(self) -> None:
        """Finish the answers under way, hang up and remove the socket.

        The caller of `stop` waits for one of these answers.
        """
        if self._server is not None:
            self._server.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), _LAST_ANSWERS_SECONDS)
        for connection in self._connections:
            connection.cancel()
        self._path.unlink(missing_ok=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # a connection is always served by a task
        if len(self._connections) >= MOST_CONNECTIONS:
            self._full.say(
                f"more than {MOST_CONNECTIONS} connections to {self._path} at once: the new ones"
                " are closed"
            )
            writer.close()
            return
        self._connections.add(task)
        try:
            with suppress(ConnectionError, TimeoutError, asyncio.CancelledError):
                while line := await asyncio.wait_for(reader.readline(), REQUEST_SECONDS):
                    await self._serve(line, reader, writer)
        except ValueError:  # a line beyond the stream's limit of 64 KiB: not one of our clients
            await _send(
                writer, {"ok": False, "error": "expected one JSON object a line of at most 64 KiB"}
            )
        finally:
            self._connections.discard(task)
            writer.close()

    async def _serve(
        self, line: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            request = parsed_json(line)
        except ValueError:
            request = None
        if not isinstance(request, dict):
            await _send(
                writer,
                {"ok": False, "error": f"expected one JSON object a line, got {line[:80]!r}"},
            )
        elif request.get("verb") == "watch":
            await self._watch(reader, writer)
        else:
            self._answering += 1
            self._idle.clear()
            try:
                await _send(writer, await self._reply(request))
            finally:
                self._answering -= 1
                if not self._answering:
                    self._idle.set()

    async def _reply(self, request: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return {"ok": True, **await self._answer(request)}
        except ClusterError as error:
            return {"ok": False, "error": str(error)}

    async def _watch(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        watcher = asyncio.Event()
        self._watchers.add(watcher)
        # A healthy cluster changes never: without a look, a client that hung up would be kept until
        # the next failure.
        hung_up = asyncio.create_task(_end_of(reader))
        hung_up.add_done_callback(lambda _: watcher.set())
        try:
            while not hung_up.done():
                watcher.clear()
                await _send(writer, {"ok": True, **self._status().to_json()})
                await watcher.wait()
        finally:
            hung_up.cancel()
            self._watchers.discard(watcher)


async def _end_of(reader: asyncio.StreamReader) -> None:
    """Wait until the other side hangs up; what it says until then is ignored."""
    with suppress(ConnectionError):
        while await reader.read(4096):
            pass


async def _send(writer: asyncio.StreamWriter, reply: Mapping[str, Any]) -> None:
    writer.write(json.dumps(reply).encode() + b"\n")
    await writer.drain()


class NobodyListensError(ClusterError):
    """There is no supervisor at the socket."""


class ControlClient:
    """One request a connection.

    Every wait has a deadline, because a supervisor may be stopped or stuck.
    """

    def __init__(
        self,
        path: Path,
        deadline_seconds: float = 10.0,
        stop_command: str = "fab deploy stop",
    ) -> None:
        """`stop_command` is what to type against a supervisor that does not answer."""
        self._path = path
        self._deadline_seconds = deadline_seconds
        self._stop_command = stop_command

    def status(self) -> ClusterStatus:
        """The cluster as it is now."""
        return ClusterStatus.from_json(self.ask("status"))

    def ask(self, verb: str, **request: Any) -> dict[str, Any]:
        """The reply to one verb.

        Raises NobodyListensError without a supervisor, ClusterError when it refuses or does not
        answer in time.
        """
        with self._connect() as connection:
            return self._reply(connection, verb, request)

    def watch(self) -> Generator[ClusterStatus, None, None]:
        """The status now and after every change; every step waits at most the deadline.

        Raises as `ask`.
        """
        with self._connect() as connection:
            yield ClusterStatus.from_json(self._reply(connection, "watch", {}))
            while True:
                yield ClusterStatus.from_json(self._reply(connection, "watch"))

    def _connect(self) -> SupervisorConnection:
        try:
            return SupervisorConnection(self._path, self._deadline_seconds)
        except (FileNotFoundError, ConnectionRefusedError) as error:
            raise NobodyListensError(f"no supervisor listens at {self._path}") from error
        except OSError as error:
            raise self._failed(f"cannot be reached: {error}") from error

    def _reply(
        self, connection: SupervisorConnection, verb: str, request: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """The next reply, after sending the request if there is one."""
        try:
            if request is not None:
                connection.send(verb, **request)
            line = connection.read_line()
        except TimeoutError as error:
            late = f"did not answer {verb!r} within {self._deadline_seconds:.0f} s"
            raise self._failed(late, "ends it by force") from error
        except OSError as error:
            raise self._failed(f"hung up: {error}") from error
        if not line:
            raise self._failed(f"ended before it answered {verb!r}")
        try:
            reply = parsed_json(line)
        except ValueError:
            reply = None
        if not isinstance(reply, dict):
            raise ClusterError(
                f"the supervisor at {self._path} answered {verb!r} with {line[:80]!r}: expected an"
                " object"
            )
        if not reply.get("ok"):
            raise ClusterError(str(reply.get("error", reply)))
        return reply

    def _failed(self, what: str, remedy: str = "ends what is left") -> ClusterError:
        return ClusterError(
            f"the supervisor at {self._path} {what}; `{self._stop_command}` {remedy}"
        )
