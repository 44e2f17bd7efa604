"""The service on its port, in the main thread, until a signal ends it."""

import asyncio
import json
import logging
import math
import socket
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import h11
import uvicorn

from core.control.door import Door, listening, oldest_idle
from core.ground.errors import ClusterError, reason_of
from core.metrics import exporter
from core.web.entrance import Entrance, HttpConnection, Patience
from recognise.service.application import Application
from recognise.service.guard import STREAM, ServiceGuard
from recognise.service.limits import Budget, Limits, keep_what_there_is
from recognise.service.live.sockets import Sockets
from recognise.service.metrics import ServiceMetrics
from recognise.service.places import MOST_UNPROVEN, PROVE, UnprovenPlaces
from recognise.service.serving import LOOK_SECONDS, Serving
from recognise.service.versions import Versions

if TYPE_CHECKING:
    from recognise.service.tls import Tls


AT_ONCE = 4
"""Connections to accept in one turn: they must not push each other out before they are read."""


class ServiceConnection(HttpConnection):
    """A connection that answers with the protocol's error object, and may become a WebSocket.

    Names of uvicorn's: `send_400_response`, `handle_websocket_upgrade`, `_should_upgrade`,
    `_get_upgrade`, `conn`, `config`, `scope`, `transport` and `ws_protocol_class`.
    """

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that are no HTTP (overrides uvicorn's)."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()  # an answer is under way
            return
        most = self.config.h11_max_incomplete_event_size
        self._close_with(400, f"expected a request of HTTP/1.1 with a head of at most {most} bytes")

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Make this connection a WebSocket, which the entrance forgets (overrides uvicorn's)."""
        sockets = cast(Sockets, self.ws_protocol_class)
        if sockets.full or sockets.ending:
            if sockets.ending:
                reason = "the service ends"
            else:
                reason = "too many sessions are open already"
            self._close_with(503, f"{reason}: come again later")
            return
        self.forget(self)
        super().handle_websocket_upgrade(event)

    def _should_upgrade(self) -> bool:
        """Return whether the request is for a WebSocket at its path (overrides uvicorn's).

        At other paths the header Upgrade means nothing.
        """
        return (
            self.scope["path"] == STREAM
            and self.scope["method"] == "GET"
            and self._get_upgrade() == b"websocket"
        )

    def _close_with(self, status: int, message: str) -> None:
        body = json.dumps({"error": message}).encode()
        headers = [
            ("content-type", "application/json"),
            ("content-length", str(len(body))),
            ("connection", "close"),
        ]
        for event in (
            h11.Response(status_code=status, headers=headers),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


class ServiceEntrance(Entrance):
    """An entrance where a client without the token has a place for a moment only.

    The name `app_state` is uvicorn's.
    """

    def __init__(
        self, *arguments: Any, places: UnprovenPlaces, most_proven: int, **options: Any
    ) -> None:
        """`places` are those of clients that have not named the token."""
        super().__init__(*arguments, **options)
        self._places = places
        self._most_proven = most_proven
        self._proven: dict[HttpConnection, None] = {}
        self._door.at_once = AT_ONCE

    def _take(self, accepted: socket.socket, client: str) -> HttpConnection:
        connection = super()._take(accepted, client)
        self._places.enter(connection, client, partial(self._end, connection))
        connection.app_state[PROVE] = partial(self._prove, connection)
        return connection

    def _prove(self, connection: HttpConnection) -> None:
        if connection not in self._connections or connection in self._proven:
            return
        self._places.leave(connection)
        if len(self._proven) >= self._most_proven:
            oldest = oldest_idle(self._proven)
            if oldest is not None:
                self._end(oldest)
        self._proven[connection] = None

    def _forget(self, connection: HttpConnection) -> None:
        self._places.leave(connection)
        self._proven.pop(connection, None)
        super()._forget(connection)


log = logging.getLogger(__name__)

KEEP_SECONDS = 75
"""A connection may stay without a request for so long: clients keep theirs, and a race with the end
costs a request."""
STALL_MILLISECONDS = 20_000
"""Time that the kernel waits for a client that takes nothing (TCP_USER_TIMEOUT)."""
LONGEST_ANSWER_SECONDS = 60.0
"""Time from a request's head to its answer's end; the limits of the parts end before."""
CLOSE_SECONDS = 5
PULSE_SECONDS = 10.0
"""A service whose event loop stood still for so long is not ready."""


class _Server(uvicorn.Server):
    """A server of uvicorn's that calls `before_shutdown`, a name of ours, before `shutdown`."""

    before_shutdown: Callable[[], None]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Notify the service first (overrides uvicorn's)."""
        self.before_shutdown()
        await super().shutdown(sockets)


class Pulse:
    """The heartbeat of the event loop that answers clients."""

    def __init__(self) -> None:
        self._at = -math.inf

    def is_felt(self) -> bool:
        """Return whether it was felt lately. Any thread may ask."""
        return time.monotonic() - self._at < PULSE_SECONDS

    async def follow(self) -> None:
        """Beat until this is cancelled."""
        while True:
            self._at = time.monotonic()
            await asyncio.sleep(PULSE_SECONDS / 10)


@dataclass(frozen=True)
class ServiceOptions:
    """Where the service listens, and what it asks of a client."""

    host: str
    port: int
    names: Collection[str] = ()
    given_names: Collection[str] = ()
    """The names that the operator gave; they are among `names`."""
    token: str | None = None
    tls: "Tls | None" = None
    """None is plain HTTP."""
    authority: Path | None = None
    """The certificate that phones may install."""
    metrics_port: int = 0
    """The port of `/metrics` over plain HTTP without a token; 0 is any free one."""
    metrics_host: str = ""
    """The address of that port; empty is `host`."""
    waits: bool = False
    """Whether it waits for the first promotion, with its port closed, rather than end without one.
    """


def bound(options: ServiceOptions) -> socket.socket:
    """Return the socket that listens. Raises ClusterError when the port is taken."""
    try:
        listener = listening(options.host, options.port)
    except (OSError, OverflowError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise ClusterError(
            f"port {options.port} of {options.host} cannot be opened ({reason}): end what listens"
            " there, or choose another with --port"
        ) from None
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, STALL_MILLISECONDS)
    # Accepted sockets inherit it. asyncio sets it where a socket names its protocol, and `accept`
    # names none; without it, the second part of an answer waits 40 ms for the client's
    # acknowledgement of the first.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


async def serve(
    name: str,
    folder: Path,
    options: ServiceOptions,
    limits: Limits,
    ready: Callable[[int, int, int], None],
    listener: socket.socket | None = None,
) -> None:
    """Answer until SIGINT or SIGTERM, at `listener` where the port is open already.

    `ready` gets the port, the version and the port of the figures once clients get answers.

    Raises ClusterError when the port or the model cannot be opened.
    """
    versions = Versions(folder, limits)
    if options.waits:
        await _first(versions)
    listener = listener or bound(options)
    metrics = ServiceMetrics()
    pulse = Pulse()
    with (
        listener,
        _exporter(options, metrics, pulse) as metrics_port,
        closing(Serving(name, versions, limits, metrics)) as serving,
    ):
        await serving.begin()
        budget = Budget(limits.held_bytes)
        application = Application(serving, options.token, budget, options.authority)
        guarded = ServiceGuard(
            application.starlette(), options.names, options.token, metrics, options.given_names
        )
        places = UnprovenPlaces()
        sockets = Sockets(limits.streams, metrics.session_refused, places, budget)
        server = _Server(_configuration(guarded, limits, sockets))
        server.config.load()
        following = [
            asyncio.create_task(serving.follow()),
            asyncio.create_task(serving.watch()),
            asyncio.create_task(pulse.follow()),
        ]
        if options.tls is not None:
            following.append(asyncio.create_task(options.tls.follow()))
        door = Door(listener, "the service", limits.connections + MOST_UNPROVEN)
        patience = Patience(limits.body_seconds / 2, LONGEST_ANSWER_SECONDS, KEEP_SECONDS)
        entrance = ServiceEntrance(
            door,
            server,
            endless="",
            patience=patience,
            protocol=ServiceConnection,
            tls=options.tls.context if options.tls else None,
            places=places,
            most_proven=limits.connections,
        )
        server.before_shutdown = partial(_take_no_more, entrance, sockets)
        keep_what_there_is()
        ready(listener.getsockname()[1], serving.current.number, metrics_port)
        try:
            await server.serve(sockets=[])  # which come through the entrance
        finally:
            for task in following:
                task.cancel()
            entrance.close()
            application.close()
            await asyncio.gather(*following, return_exceptions=True)
            await asyncio.sleep(0)


def _take_no_more(entrance: Entrance, sockets: Sockets) -> None:
    """Take no new client: a session that moves must not find this service once more."""
    entrance.stop()
    sockets.end()


async def _first(versions: Versions) -> None:
    """Return once a version was promoted. Raises ClusterError for a pointer that cannot be read."""
    if await asyncio.to_thread(versions.current) is None:
        log.info("no version was promoted yet: waiting for the first one")
    while await asyncio.to_thread(versions.current) is None:
        await asyncio.sleep(LOOK_SECONDS)


@contextmanager
def _exporter(options: ServiceOptions, metrics: ServiceMetrics, pulse: Pulse) -> Iterator[int]:
    """Have the port of metrics and probes, which has threads and connections of its own."""
    host = options.metrics_host or options.host
    try:
        metrics_exporter = exporter.serve(
            metrics.registry, host, options.metrics_port, pulse.is_felt
        )
    except OSError as problem:
        raise ClusterError(
            f"port {options.metrics_port} of {host} cannot be opened"
            f" ({reason_of(problem)}): end what listens there, or choose another with"
            " --metrics-port"
        ) from None
    try:
        yield metrics_exporter.port
    finally:
        metrics_exporter.close()


def _configuration(application: ServiceGuard, limits: Limits, sockets: Sockets) -> uvicorn.Config:
    return uvicorn.Config(
        application,
        log_config=None,
        log_level="critical",
        access_log=False,
        lifespan="off",
        loop="asyncio",
        http="h11",
        ws=cast(Any, sockets),
        ws_max_size=limits.streams.message_bytes,
        ws_per_message_deflate=False,
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=limits.head_bytes,
        timeout_keep_alive=KEEP_SECONDS,
        timeout_graceful_shutdown=CLOSE_SECONDS,
    )
