"""The service on its port, in the main thread, until a signal ends it."""

import asyncio
import json
import logging
import socket
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import h11
import uvicorn

from cluster.control.door import Door, listening
from cluster.errors import ClusterError, reason_of
from cluster.metrics import exporter
from cluster.pages.entrance import Connection, Entrance, Patience
from recognise.service.application import Application
from recognise.service.guard import STREAM, Guarded
from recognise.service.limits import Limits
from recognise.service.live.sockets import Sockets
from recognise.service.memory import keep_what_there_is
from recognise.service.metrics import ServiceMetrics
from recognise.service.serving import LOOK_SECONDS, Serving
from recognise.service.versions import Versions

if TYPE_CHECKING:  # plain HTTP needs neither cryptography nor MQTT
    from recognise.service.broker import Broker
    from recognise.service.live.devices import Devices, Publish
    from recognise.service.tls import Tls

log = logging.getLogger(__name__)

KEEP_SECONDS = 75
"""A connection may stay without a request for so long: clients keep theirs, and a race with the end costs a request."""
STALL_MILLISECONDS = 20_000
"""What the kernel waits for a client that takes nothing (TCP_USER_TIMEOUT)."""
LONGEST_ANSWER_SECONDS = 60.0
"""From the head of a request to the end of its answer; the limits of the parts end before."""
CLOSE_SECONDS = 5


class _Connection(Connection):
    """uvicorn's, with the protocol's error object for what is no HTTP."""

    def send_400_response(self, msg: str) -> None:
        """See uvicorn."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()  # an answer is under way
            return
        most = self.config.h11_max_incomplete_event_size
        self._close_with(400, f"expected a request of HTTP/1.1 with a head of at most {most} bytes")

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """See uvicorn. The connection is a WebSocket from here on, and no longer one of the entrance."""
        sockets = cast(Sockets, self.ws_protocol_class)
        if sockets.full or sockets.ending:
            words = "the service ends" if sockets.ending else "too many sessions are open already"
            self._close_with(503, f"{words}: come again later")
            return
        self._lost(self)
        super().handle_websocket_upgrade(event)

    def _should_upgrade(self) -> bool:
        """Whether it asks for a WebSocket where there is one; elsewhere the header Upgrade means nothing."""
        return self.scope["path"] == STREAM and self.scope["method"] == "GET" and self._get_upgrade() == b"websocket"

    def _close_with(self, status: int, words: str) -> None:
        body = json.dumps({"error": words}).encode()
        headers = [("content-type", "application/json"), ("content-length", str(len(body))), ("connection", "close")]
        for event in (h11.Response(status_code=status, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


class _Server(uvicorn.Server):
    """uvicorn's, which calls `ends` before it ends."""

    ends: Callable[[], None]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """See uvicorn."""
        self.ends()
        await super().shutdown(sockets)


@dataclass(frozen=True)
class Place:
    """Where the service listens, and what it asks of a client."""

    host: str
    port: int
    names: Collection[str] = ()
    token: str | None = None
    tls: "Tls | None" = None
    """None is plain HTTP."""
    authority: Path | None = None
    """The certificate that phones may install."""
    metrics_port: int | None = None
    """Of `/metrics` over plain HTTP without a token; None is none."""
    broker: "Broker | None" = None
    """Of MQTT, where devices publish their readings too."""
    waits: bool = False
    """Whether it waits for the first promotion, with its port closed, rather than end without one."""


def bound(place: Place) -> socket.socket:
    """The socket that listens. Raises ClusterError in one line when the port is taken."""
    try:
        listener = listening(place.host, place.port)
    except (OSError, OverflowError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise ClusterError(
            f"port {place.port} of {place.host} cannot be opened ({reason}): end what listens there, or choose another "
            "with --port"
        ) from None
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, STALL_MILLISECONDS)
    # Accepted sockets inherit it. asyncio sets it where a socket names its protocol, and `accept` names none; without
    # it, the second part of an answer waits 40 ms for the client's acknowledgement of the first.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


async def serve(
    name: str, folder: Path, place: Place, limits: Limits, ready: Callable[[int, int], None]
) -> None:  # fmt: skip
    """Answer until SIGINT or SIGTERM. `ready` gets the port and the version once clients get answers.

    Raises ClusterError when the port or the model cannot be opened.
    """
    versions = Versions(folder)
    if place.waits:
        await _first(versions)
    listener = bound(place)
    metrics = ServiceMetrics()
    with (
        listener,
        _exporter(place, metrics),
        ThreadPoolExecutor(limits.threads, thread_name_prefix="inference") as pool,
    ):
        serving = Serving(name, versions, pool, limits, metrics)
        await serving.begin()
        application = Application(serving, metrics, limits, place.token, place.authority)
        guarded = Guarded(application.starlette(), place.names, place.token, metrics)
        sockets = Sockets(limits.streams, metrics.session_refused)
        server = _Server(_configuration(guarded, limits, sockets))
        server.config.load()
        following = [asyncio.create_task(serving.follow())]
        if place.broker is not None:
            following.append(asyncio.create_task(_follow_broker(place.broker, serving, metrics, limits)))
        if place.tls is not None:
            following.append(asyncio.create_task(place.tls.follow()))
        door = Door(listener, "the service", limits.connections)
        patience = Patience(limits.body_seconds / 2, LONGEST_ANSWER_SECONDS, KEEP_SECONDS)
        context = None if place.tls is None else place.tls.context
        entrance = Entrance(door, server, endless="", patience=patience, protocol=_Connection, tls=context)
        server.ends = partial(_take_no_more, entrance, sockets)
        keep_what_there_is()
        ready(listener.getsockname()[1], serving.current.number)
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
    """A session that moves must find the next service at this port, or none, and not this one once more."""
    entrance.stop()
    sockets.end()


async def _follow_broker(broker: "Broker", serving: Serving, metrics: ServiceMetrics, limits: Limits) -> None:
    from recognise.service.broker import follow  # with the filters of sessions: other services spare 50 MB
    from recognise.service.live.devices import Devices

    def made(publish: "Publish") -> "Devices":
        return Devices(broker.prefix, serving, metrics, limits, publish)

    await follow(broker, limits.streams.message_bytes, made)


async def _first(versions: Versions) -> None:
    """Return once a version was promoted. Raises ClusterError for a pointer that cannot be read."""
    if await asyncio.to_thread(versions.current) is None:
        log.info("no version was promoted yet: waiting for the first one")
    while await asyncio.to_thread(versions.current) is None:
        await asyncio.sleep(LOOK_SECONDS)


@contextmanager
def _exporter(place: Place, metrics: ServiceMetrics) -> Iterator[None]:
    if place.metrics_port is None:
        yield
        return
    try:
        found = exporter.serve(metrics.registry, place.host, place.metrics_port, lambda: True)
    except OSError as problem:
        raise ClusterError(
            f"port {place.metrics_port} of {place.host} cannot be opened ({reason_of(problem)}): end what listens "
            "there, or choose another with --metrics-port"
        ) from None
    try:
        yield
    finally:
        found.close()


def _configuration(application: Guarded, limits: Limits, sockets: Sockets) -> uvicorn.Config:
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
