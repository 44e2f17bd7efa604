"""The live page over HTTP: a thread of the coordinator that answers for as long as the job runs.

| path | answer |
|---|---|
| `/` | the page |
| `/static/NAME` | its scripts, styles and pictures |
| `/api/status` | the run as JSON |
| `/events` | server-sent events: what has changed, once a second |
"""

import asyncio
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from cluster.control.door import Door, listening
from cluster.pages.entrance import Entrance, Guarded, Receive, Scope, Send
from cluster.pages.viewers import MOST_VIEWERS, Renderer, Viewers
from cluster.status.history_file import finite
from cluster.status.view import RunView, described

log = logging.getLogger(__name__)

FRESH_SECONDS = 0.5
"""An answer so old is given again."""
WATCHED_SECONDS = 15.0
"""A client that asked for the status this recently is looking."""
CLOSE_SECONDS = 2.0
STALL_MILLISECONDS = 20_000
"""What the kernel waits for a viewer that takes nothing before it cuts the connection (TCP_USER_TIMEOUT)."""
MOST_CONNECTIONS = 2 * MOST_VIEWERS

MOST_HEAD_BYTES = 16_384
EVENTS = "/events"

View = Callable[[], RunView]


class PageServer:
    """A running server. `port` is the one bound, also where 0 was asked for."""

    def __init__(
        self, host: str, port: int, view: View, renderer: Renderer, static: Path, names: Collection[str] = ()
    ) -> None:  # fmt: skip
        """`view()` is asked from the server's thread. Raises OSError when the address cannot be bound."""
        listener = listening(host, port)
        # Inherited by the connections.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, STALL_MILLISECONDS)
        self._door = Door(listener, "the live page", MOST_CONNECTIONS)
        self.port: int = listener.getsockname()[1]
        self.viewers = Viewers(view, renderer, self._door.most // 2)
        self._pages = _Pages(view, renderer)
        application = Starlette(
            routes=[
                Route("/", self._pages.page),
                Route("/api/status", self._pages.status),
                Route(EVENTS, Events(self.viewers)),
                Mount("/static", StaticFiles(directory=static)),
            ],
            exception_handlers={404: _unknown, Exception: _broken},
        )
        self._server = uvicorn.Server(
            uvicorn.Config(
                Guarded(application, names),
                log_config=None,
                log_level="critical",
                access_log=False,
                lifespan="off",
                loop="asyncio",
                http="h11",
                ws="none",
                server_header=False,
                proxy_headers=False,
                h11_max_incomplete_event_size=MOST_HEAD_BYTES,
                timeout_keep_alive=5,
                timeout_graceful_shutdown=1,
            )
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._run, name="page", daemon=True)
        self._thread.start()

    @property
    def watched(self) -> bool:
        """Whether a viewer looks."""
        return bool(self.viewers.count) or time.monotonic() - self._pages.asked < WATCHED_SECONDS

    def close(self) -> None:
        """Send every viewer the last picture, stop answering, free the port. Takes a few seconds at most."""
        if self._thread.is_alive() and self._begun.wait(CLOSE_SECONDS) and self._loop is not None:
            closing = self.viewers.close()
            try:
                asyncio.run_coroutine_threadsafe(closing, self._loop).result(CLOSE_SECONDS)
            except TimeoutError:  # held up: it ends anyway
                pass
            except RuntimeError:  # the loop has ended by itself
                closing.close()
        self._server.should_exit = True
        self._thread.join(2 * CLOSE_SECONDS)
        self._door.listener.close()

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._begun.set()
        self._server.config.load()
        entrance = Entrance(self._door, self._server, EVENTS)
        try:
            await self._server.serve(sockets=[])  # which come through the entrance
        finally:
            entrance.close()


class _Pages:
    """The answers."""

    def __init__(self, view: View, renderer: Renderer) -> None:
        self._view, self._renderer = view, renderer
        self._given: dict[str, tuple[float, bytes]] = {}
        self.asked = float("-inf")

    async def page(self, _request: Request) -> Response:
        """The whole page as it is now."""
        return HTMLResponse(self._fresh("page", lambda: self._renderer.page(self._view()).encode()))

    async def status(self, _request: Request) -> Response:
        """The whole picture as JSON."""
        self.asked = time.monotonic()

        def draw() -> bytes:
            return json.dumps(finite(described(self._view())), allow_nan=False).encode() + b"\n"

        return Response(self._fresh("status", draw), media_type="application/json")

    def _fresh(self, name: str, draw: Callable[[], bytes]) -> bytes:
        given, content = self._given.get(name, (float("-inf"), b""))
        if time.monotonic() - given >= FRESH_SECONDS:
            content = draw()
            self._given[name] = time.monotonic(), content
        return content


class Events:
    """Changes as they come, until the viewer goes, is too slow, or the job ends."""

    def __init__(self, viewers: Viewers) -> None:
        self._viewers = viewers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if self._viewers.full:
            words = f"{self._viewers.count} viewers have this page open already: wait until one closes it\n"
            await PlainTextResponse(words, 503, {"Retry-After": "30"})(scope, receive, send)
            return
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if scope["method"] == "HEAD":
            await send({"type": "http.response.body", "body": b""})
            return
        viewer = self._viewers.enter()

        async def sending() -> None:
            async for chunk in self._viewers.stream(viewer):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})

        async def leaving() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        tasks = [asyncio.ensure_future(work) for work in (sending(), leaving(), viewer.gone.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._viewers.leave(viewer)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


_not_found = PlainTextResponse("expected /, /events, /api/status or /static/NAME\n", 404)


async def _unknown(_request: Request, _problem: Exception) -> Response:
    return _not_found


async def _broken(_request: Request, problem: Exception) -> Response:
    log.warning("the live page cannot be drawn: %s: %s", type(problem).__name__, problem)
    return PlainTextResponse("the page cannot be drawn: the run's log says why\n", 500)
