"""The viewers of the page: it is drawn once a second for all of them, and not at all without one."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Protocol

from cluster.status.view import RunView


class Renderer(Protocol):
    """Draws one picture of a run. Called by one thread at a time."""

    def page(self, view: RunView) -> str:
        """The whole page, as HTML."""
        ...

    def fragments(self, view: RunView) -> dict[str, str]:
        """The parts of the page that change, by the name of the server-sent event that carries each."""
        ...


log = logging.getLogger(__name__)

MOST_VIEWERS = 100
EVERY_SECONDS = 1.0
STUCK_SECONDS = 15.0
"""A viewer that has taken nothing for so long is let go; until then it gets the latest of each fragment, once."""
QUIET_SECONDS = 15.0
"""After so long without a change a comment says that the connection lives."""
OPENING = b"retry: 2000\n\n"
"""Milliseconds after which a browser asks again: another coordinator may be there by then."""
ALIVE = b": alive\n\n"
CLOSING = "closing"


@dataclass(eq=False)
class Viewer:
    """One open connection. `waiting` holds the latest of each fragment that it has not got yet."""

    waiting: dict[str, bytes] = field(default_factory=dict)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """It is too slow, or the server ends without waiting any longer."""
    taken: float = 0.0
    """When it last took what there was."""
    last: bool = False
    """Whether what is waiting is the last of it."""

    def give(self, fragments: dict[str, bytes], *, last: bool = False) -> None:
        """These are newer than what it has."""
        self.waiting.update(fragments)
        self.last = self.last or last
        if fragments or last:
            self.wake.set()


class Viewers:
    """All viewers, within one event loop."""

    def __init__(self, view: Callable[[], RunView], renderer: Renderer, most: int = MOST_VIEWERS) -> None:
        self._view, self._renderer, self._most = view, renderer, most
        self._viewers: set[Viewer] = set()
        self._drawn: dict[str, bytes] = {}
        self._drawn_at = float("-inf")
        self._drawing: asyncio.Task[None] | None = None
        self._refused = ""
        self._closed = False

    @property
    def full(self) -> bool:
        """Whether no more are taken."""
        return len(self._viewers) >= min(self._most, MOST_VIEWERS)

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._viewers)

    def enter(self) -> Viewer:
        """One more, who gets everything at once."""
        loop = asyncio.get_running_loop()
        viewer = Viewer(taken=loop.time())
        if loop.time() - self._drawn_at >= EVERY_SECONDS:
            changed = self._draw(loop.time())
            for other in self._viewers:
                other.give(changed)  # the next drawing finds no change in it any more
        viewer.give(self._drawn)
        self._viewers.add(viewer)
        if self._closed:
            viewer.give(self._closing(), last=True)  # a browser reconnects at once when its stream ends
        elif self._drawing is None or self._drawing.done():
            self._drawing = loop.create_task(self._draw_on())
        return viewer

    def leave(self, viewer: Viewer) -> None:
        """One less."""
        self._viewers.discard(viewer)

    async def stream(self, viewer: Viewer) -> AsyncIterator[bytes]:
        """What the viewer is to be sent, until it is gone or the page ends."""
        loop = asyncio.get_running_loop()
        yield OPENING
        while not viewer.gone.is_set():
            viewer.taken = loop.time()
            try:
                async with asyncio.timeout(QUIET_SECONDS):
                    await viewer.wake.wait()
            except TimeoutError:
                yield ALIVE
                continue
            chunk, last = b"".join(viewer.waiting.values()), viewer.last
            viewer.waiting.clear()
            viewer.wake.clear()
            if chunk:
                yield chunk
            if last:
                return

    async def close(self) -> None:
        """Send every viewer the last picture and an event `closing`, and let it go."""
        self._closed = True
        if self._drawing is not None:
            self._drawing.cancel()
        if self._viewers:
            changed = self._draw(asyncio.get_running_loop().time())
            changed |= self._closing()
            for viewer in self._viewers:
                viewer.give(changed, last=True)

    def _closing(self) -> dict[str, bytes]:
        return {CLOSING: event(CLOSING, json.dumps({"state": self._view().state}))}

    async def _draw_on(self) -> None:
        loop = asyncio.get_running_loop()
        while self._viewers:
            await asyncio.sleep(max(0.0, self._drawn_at + EVERY_SECONDS - loop.time()))
            changed = self._draw(loop.time())
            for viewer in self._viewers:
                if viewer.waiting and loop.time() - viewer.taken > STUCK_SECONDS:
                    viewer.gone.set()
                    viewer.wake.set()
                else:
                    viewer.give(changed)

    def _draw(self, now: float) -> dict[str, bytes]:
        """Draw everything; what has changed since the last time."""
        self._drawn_at = now
        try:
            texts = self._renderer.fragments(self._view())
            drawn = {name: event(name, text) for name, text in texts.items()}
        except Exception as problem:  # a picture that cannot be drawn ends no job
            line = f"the live page cannot be drawn: {type(problem).__name__}: {problem}"
            if line != self._refused:
                log.warning("%s", line)
            self._refused = line
            return {}
        changed = {name: content for name, content in drawn.items() if self._drawn.get(name) != content}
        self._drawn = drawn
        return changed


def event(name: str, data: str) -> bytes:
    """A server-sent event (WHATWG HTML, section 9.2)."""
    lines = "".join(f"data: {line}\n" for line in data.replace("\r\n", "\n").replace("\r", "\n").split("\n"))
    return f"event: {name}\n{lines}\n".encode()
