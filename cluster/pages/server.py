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
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from cluster.pages.drawing import Drawing
from core.control.door import AT_ONCE, Listener
from core.status.history import finite
from core.status.view import RunView, described
from core.web.entrance import PageGuard, end_late

log = logging.getLogger(__name__)

MOST_VIEWERS = 100
EVERY_SECONDS = 1.0
STUCK_SECONDS = 15.0
"""A viewer that has taken nothing for so long is let go; one that is slower than a drawing a second
gets the latest of each fragment, once."""
QUIET_SECONDS = 15.0
"""Time without a change after which a comment says that the connection lives."""
OPENING = b"retry: 2000\n\n"
"""Milliseconds after which a browser asks again: another coordinator may be there by then."""
ALIVE = b": alive\n\n"
CLOSING = "closing"

FRESH_SECONDS = 0.5
"""An answer so old is given again."""
WATCHED_SECONDS = 15.0
"""A client that asked for the status this recently is looking."""
CLOSE_SECONDS = 2.0
"""Time after which the kernel cuts the connection of a viewer that takes nothing
(TCP_USER_TIMEOUT)."""
MOST_CONNECTIONS = 2 * MOST_VIEWERS

MOST_HEAD_BYTES = 16_384
EVENTS = "/events"

View = Callable[[], RunView]


class Viewers:
    """All viewers, within one event loop: one drawing a second serves them all.

    Each gets everything at once, then what differs from what it was sent last.
    """

    def __init__(self, view: View, renderer: Drawing, most: int = MOST_VIEWERS) -> None:
        self.count = 0
        self._view = view
        self._renderer = renderer
        self._most = most
        self._drawn: dict[str, bytes] = {}
        self._drawn_at = float("-inf")
        self._changed = asyncio.Event()
        """Set, and replaced, by each drawing that differs from the one before."""
        self._drawing: asyncio.Task[None] | None = None
        self._refused = ""
        self._closed = False

    @property
    def full(self) -> bool:
        """Whether no more are taken."""
        return self.count >= min(self._most, MOST_VIEWERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send changes as they come, until the viewer goes, is too slow, or the job ends.

        See ASGI.
        """
        if self.full:
            refusal = (
                f"{self.count} viewers have this page open already: wait until one closes it\n"
            )
            await PlainTextResponse(refusal, 503, {"Retry-After": "30"})(scope, receive, send)
            return
        headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"x-accel-buffering", b"no"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if scope["method"] == "HEAD":
            await send({"type": "http.response.body", "body": b""})
            return
        self.count += 1
        self._keep_drawing()
        tasks = [asyncio.ensure_future(work) for work in (self._sending(send), _leaving(receive))]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.count -= 1
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _sending(self, send: Send) -> None:
        """Send what there is to a viewer. Raises TimeoutError when it takes nothing any more."""
        async for chunk in self.changes():
            async with asyncio.timeout(STUCK_SECONDS):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def changes(self) -> AsyncIterator[bytes]:
        """Yield everything, then what has changed since, until the page ends."""
        yield OPENING
        sent = dict[str, bytes]()
        while True:
            changed = self._changed
            closed = self._closed
            new = {name: text for name, text in self._drawn.items() if sent.get(name) != text}
            sent |= new
            if new:
                yield b"".join(new.values())
            if closed:
                return
            try:
                async with asyncio.timeout(QUIET_SECONDS):
                    await changed.wait()
            except TimeoutError:
                yield ALIVE

    async def close(self) -> None:
        """Send every viewer the last picture and an event `closing`, and let it go."""
        if self._drawing is not None:
            self._drawing.cancel()
        if self.count:
            self._draw()
        # A browser reconnects at once when its stream ends: who comes now gets it too.
        self._closed = True
        closing = event(CLOSING, json.dumps({"state": self._view().state}))
        self._show({**self._drawn, CLOSING: closing})

    def _keep_drawing(self) -> None:
        """Draw now if the last drawing is old, and then for as long as there are viewers."""
        if self._closed:
            return
        loop = asyncio.get_running_loop()
        if loop.time() - self._drawn_at >= EVERY_SECONDS:
            self._draw()
        if self._drawing is None or self._drawing.done():
            self._drawing = loop.create_task(self._draw_on())

    async def _draw_on(self) -> None:
        loop = asyncio.get_running_loop()
        while self.count:
            await asyncio.sleep(max(0.0, self._drawn_at + EVERY_SECONDS - loop.time()))
            self._draw()

    def _draw(self) -> None:
        self._drawn_at = asyncio.get_running_loop().time()
        try:
            texts = self._renderer.fragments(self._view())
            drawn = {name: event(name, text) for name, text in texts.items()}
        except Exception as problem:  # a picture that cannot be drawn ends no job
            line = f"the live page cannot be drawn: {type(problem).__name__}: {problem}"
            if line != self._refused:
                log.warning("%s", line)
            self._refused = line
            return
        if drawn != self._drawn:
            self._show(drawn)

    def _show(self, drawn: dict[str, bytes]) -> None:
        self._drawn = drawn
        self._changed.set()
        self._changed = asyncio.Event()


async def _leaving(receive: Receive) -> None:
    """Wait until the viewer goes."""
    while (await receive())["type"] != "http.disconnect":
        pass


def event(name: str, data: str) -> bytes:
    """A server-sent event (WHATWG HTML, section 9.2)."""
    lines = "".join(
        f"data: {line}\n" for line in data.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    )
    return f"event: {name}\n{lines}\n".encode()


class PageServer:
    """A running server. `port` is the one bound, also where 0 was asked for."""

    def __init__(
        self,
        host: str,
        port: int,
        view: View,
        renderer: Drawing,
        static: Path,
        names: Collection[str] = (),
    ) -> None:
        """`view()` is asked from the server's thread.

        Raises OSError when the address cannot be bound.
        """
        self._listener = Listener(host, port, "the live page", MOST_CONNECTIONS)
        self.port = self._listener.port
        self.viewers = Viewers(view, renderer, self._listener.most // 2)
        self._view = view
        self._renderer = renderer
        self._drawn: dict[str, tuple[float, bytes]] = {}
        self._status_read_at = float("-inf")
        application = Starlette(
            routes=[
                Route("/", self._page),
                Route("/api/status", self._status),
                Route(EVENTS, self.viewers),
                Mount("/static", StaticFiles(directory=static, packages=[("core.web", "static")])),
            ],
            exception_handlers={404: _unknown, Exception: _broken},
        )
        self._server = uvicorn.Server(
            uvicorn.Config(
                PageGuard(application, names, self._listener),
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
                backlog=AT_ONCE,
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
        return bool(self.viewers.count) or time.monotonic() - self._status_read_at < WATCHED_SECONDS

    def close(self) -> None:
        """Send every viewer the last picture, stop answering, free the port.

        Takes a few seconds at most.
        """
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
        self._listener.close()

    async def _page(self, _request: Request) -> Response:
        return HTMLResponse(self._fresh("page", lambda: self._renderer.page(self._view()).encode()))

    async def _status(self, _request: Request) -> Response:
        self._status_read_at = time.monotonic()

        def draw() -> bytes:
            return json.dumps(finite(described(self._view())), allow_nan=False).encode() + b"\n"

        return Response(self._fresh("status", draw), media_type="application/json")

    def _fresh(self, name: str, draw: Callable[[], bytes]) -> bytes:
        drawn_at, content = self._drawn.get(name, (float("-inf"), b""))
        if time.monotonic() - drawn_at >= FRESH_SECONDS:
            content = draw()
            self._drawn[name] = time.monotonic(), content
        return content

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._begun.set()
        ending = asyncio.create_task(end_late(self._listener))
        try:
            await self._server.serve(sockets=[self._listener])
        finally:
            ending.cancel()


async def _unknown(_request: Request, _problem: Exception) -> Response:
    return PlainTextResponse("expected /, /events, /api/status or /static/NAME\n", 404)


async def _broken(_request: Request, problem: Exception) -> Response:
    log.warning("the live page cannot be drawn: %s: %s", type(problem).__name__, problem)
    return PlainTextResponse("the page cannot be drawn: the run's log says why\n", 500)
