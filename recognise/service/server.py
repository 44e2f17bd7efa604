"""The service on its port, in the main thread, until a signal ends it."""

import asyncio
import logging
import math
import signal
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn

from core.control.door import AT_ONCE, Listener, RateLimitedLog
from core.ground.errors import ClusterError, reason_of
from core.metrics import exporter
from core.web.entrance import end_late
from recognise.service.application import Application
from recognise.service.guard import ServiceGuard
from recognise.service.limits import Budget, Limits, keep_what_there_is
from recognise.service.metrics import ServiceMetrics
from recognise.service.serving import LOOK_SECONDS, Serving
from recognise.service.versions import Versions
from recognise.service.worker.process import Nursery

if TYPE_CHECKING:
    from recognise.service.tls import Tls


log = logging.getLogger(__name__)

KEEP_SECONDS = 75
"""A connection may stay without a request for so long: clients keep theirs, and a race with the end
costs a request."""
MOST_UNPROVEN = 128
"""Connections of clients that have not named the token."""
SHARE = 4
"""One address has at most one in 4 of these."""
START_SECONDS = 0.01
CLOSE_SECONDS = 5
PULSE_SECONDS = 10.0
"""A service whose event loop stood still for so long is not ready."""


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


def bound(options: ServiceOptions, limits: Limits) -> Listener:
    """Return the socket that listens. Raises ClusterError when the port is taken."""
    most = limits.connections + limits.streams.sessions
    try:
        return Listener(options.host, options.port, "the service", MOST_UNPROVEN, most, SHARE)
    except (OSError, OverflowError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise ClusterError(
            f"port {options.port} of {options.host} cannot be opened ({reason}): end what listens"
            " there, or choose another with --port"
        ) from None


async def serve(
    name: str,
    folder: Path,
    options: ServiceOptions,
    limits: Limits,
    ready: Callable[[int, int, int], None],
    nursery: Nursery,
    listener: Listener | None = None,
) -> None:
    """Answer until SIGINT or SIGTERM, at `listener` where the port is open already.

    `ready` gets the port, the version and the port of the figures once clients get answers.

    Raises ClusterError when the port or the model cannot be opened.
    """
    versions = Versions(folder, limits)
    if options.waits:
        await _first(versions)
    listener = listener or bound(options, limits)
    metrics = ServiceMetrics()
    pulse = Pulse()
    with (
        listener,
        _exporter(options, metrics, pulse) as metrics_port,
        closing(Serving(name, versions, limits, metrics, nursery)) as serving,
    ):
        await serving.begin()
        application = Application(
            serving, options.token, Budget(limits.held_bytes), options.authority
        )
        guarded = ServiceGuard(
            application.starlette(),
            options.names,
            options.token,
            metrics,
            options.given_names,
            listener,
        )
        server = uvicorn.Server(_configuration(guarded, limits, options.tls))
        following = [
            asyncio.create_task(serving.follow()),
            asyncio.create_task(serving.watch()),
            asyncio.create_task(pulse.follow()),
            asyncio.create_task(end_late(listener)),
        ]
        if options.tls is not None:
            following.append(asyncio.create_task(options.tls.follow()))
        keep_what_there_is()
        failures = RateLimitedLog(log)
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: failures.say(f"a connection failed: {context!r:.300}")
        )
        answering = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            while not (server.started or answering.done()):
                await asyncio.sleep(START_SECONDS)
            asked_to_end = _asked_to_end(nursery)
            ready(listener.port, serving.current.number, metrics_port)
            await asyncio.wait((answering, asked_to_end), return_when=asyncio.FIRST_COMPLETED)
            for listening in server.servers:  # a session that moves must not come here again
                listening.close()
            await application.end()
            server.should_exit = True
            await answering
        finally:
            for task in following:
                task.cancel()
            application.close()
            await asyncio.gather(*following, return_exceptions=True)


def _asked_to_end(nursery: Nursery) -> asyncio.Future[None]:
    """Return a future that SIGINT and SIGTERM complete, and the end of the nursery.

    The signals do so in the place of uvicorn's handlers: live sessions end before the connections,
    which uvicorn would close at once.
    """
    loop = asyncio.get_running_loop()
    stop_request = loop.create_future()

    def end() -> None:
        if not stop_request.done():
            stop_request.set_result(None)

    def end_without_models() -> None:
        loop.remove_reader(nursery)
        log.critical("the process that starts those of models has ended: so does the service")
        end()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end)
    loop.add_reader(nursery, end_without_models)
    return stop_request


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


def _configuration(application: ServiceGuard, limits: Limits, tls: "Tls | None") -> uvicorn.Config:
    return uvicorn.Config(
        application,
        log_config=None,
        log_level="critical",
        access_log=False,
        lifespan="off",
        loop="asyncio",
        http="h11",
        ws="websockets-sansio",
        ws_max_size=limits.streams.message_bytes,
        ws_per_message_deflate=False,
        server_header=False,
        proxy_headers=False,
        backlog=AT_ONCE,
        h11_max_incomplete_event_size=limits.head_bytes,
        timeout_keep_alive=KEEP_SECONDS,
        timeout_graceful_shutdown=CLOSE_SECONDS,
        ssl_context_factory=None if tls is None else lambda *_: tls.context,
    )
