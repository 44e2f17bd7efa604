"""Having a worker drained with `POST /drain/worker:3?seconds=60` on the coordinator's metrics port."""

import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

from cluster.control.rules import Acting

PREFIX = "/drain/"
USUAL_SECONDS = 60.0
LONGEST_SECONDS = 3600.0

Answer = tuple[HTTPStatus, str]


@dataclass(frozen=True)
class DrainRequests:
    """Requests are taken from the coordinator's own node, the one place where SSH leads a person who may ask.

    `drain` gets the worker's name and the seconds that the client would wait. It answers within them.
    """

    drain: Callable[[str, float], Answer]

    @property
    def acting(self) -> Acting:
        """Who may."""
        return Acting("only the coordinator's node may have a worker drained")

    def answer(self, target: str) -> Answer:
        """To a request for `target` that is allowed."""
        path, _, query = target.removeprefix(PREFIX).partition("?")
        try:
            given = dict(urllib.parse.parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query)))
            seconds = float(given.pop("seconds", USUAL_SECONDS))
            if given or not 0.0 <= seconds <= LONGEST_SECONDS:
                raise ValueError(query)
        except ValueError:
            return HTTPStatus.BAD_REQUEST, f"expected ?seconds=N with N from 0 to {LONGEST_SECONDS:.0f}, got ?{query}"
        return self.drain(urllib.parse.unquote(path), seconds)
