"""Metrics ports that behave like those of roles: restarted on request, in this process."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry

from core.control.actions import Actions
from core.metrics import exporter


class PlayedRole:
    """A port that is ready; after `POST /restart` another process seems to have it.

    A `fresh` one answers as if it were just starting.
    """

    def __init__(self, obeys: bool = True, comes_back: bool = True, fresh: bool = False) -> None:
        self.restarts = 0
        self._obeys = obeys
        self._comes_back = comes_back
        self._fresh = fresh
        self._turn = threading.Lock()
        self._serving: exporter.Exporter | None = self._serve(0)
        self.port = self._serving.port

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def end(self) -> None:
        with self._turn:
            self._comes_back = False
            if self._serving is not None:
                self._serving.close()

    def _serve(self, port: int) -> exporter.Exporter:
        actions = Actions(restart=self._restart if self._obeys else None, fresh=lambda: self._fresh)
        return exporter.serve(CollectorRegistry(), "127.0.0.1", port, lambda: True, actions=actions)

    def _restart(self, _client: str) -> None:
        with self._turn:
            self.restarts += 1
            if self._serving is not None:
                self._serving.close()
            if self._comes_back:
                self._serving = self._serve(self.port)
            else:
                self._serving = None


@contextmanager
def played_roles(**roles: PlayedRole) -> Iterator[dict[str, str]]:
    """The metrics addresses of roles given as `ps_0=PlayedRole()`, by their names."""
    try:
        yield {name.replace("_", ":"): role.address for name, role in roles.items()}
    finally:
        for role in roles.values():
            role.end()
