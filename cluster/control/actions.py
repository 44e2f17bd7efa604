"""What callers may have this process do: drain a worker, restart, name the run. `rules` decides who may."""

import re
import threading
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus

from cluster.control.messages import Reply, Request
from cluster.control.rules import DRAIN, RESTART, RUN, Rules
from cluster.control.server import Lane, Work

USUAL_SECONDS = 60.0
LONGEST_SECONDS = 3600.0
END = "/end"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")

Answer = tuple[HTTPStatus, str]


@dataclass(frozen=True)
class DrainRequests:
    """`POST /drain/worker:3?seconds=60` drains a worker.

    `drain` gets the worker's name and the time that the client waits, and answers within it.
    """

    drain: Callable[[str, float], Answer]

    def answer(self, target: str) -> Answer:
        """The answer to an allowed request for `target`."""
        path, _, query = target.removeprefix(DRAIN).partition("?")
        try:
            given = dict(urllib.parse.parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query)))
            seconds = float(given.pop("seconds", USUAL_SECONDS))
            if given or not 0.0 <= seconds <= LONGEST_SECONDS:
                raise ValueError(query)
        except ValueError:
            return HTTPStatus.BAD_REQUEST, f"expected ?seconds=N with N from 0 to {LONGEST_SECONDS:.0f}, got ?{query}"
        return self.drain(urllib.parse.unquote(path), seconds)


@dataclass(frozen=True)
class RestartRequests:
    """`POST /restart` ends a role process, so that its supervisor starts another one.

    `obey` gets the address of the caller, after the answer was sent. A `fresh` process, one that still starts, stays:
    it holds nothing yet, and its supervisor would count its end as a failed start.

    The coordinator cannot log in on the other nodes. What a dead coordinator left on their servers (its variables, its
    contexts for 600 s) has to go before the next one begins.
    """

    obey: Callable[[str], None]
    fresh: Callable[[], bool] = lambda: False

    def reply(self, client: str) -> Reply:
        """The reply to an allowed request of `client`; `obey` follows it."""
        if self.fresh():
            return Reply.words(200, "starting already")
        # In a thread of its own: what it does may end the server that has answered.
        obeying = threading.Thread(target=self.obey, args=(client,), name="restart", daemon=True)
        return Reply.words(202, "restarting", obeying.start)


@dataclass(frozen=True)
class RunRequests:
    """`POST /run/ID` names the run in the log lines of a role process, `POST /run/ID/end` ends that.

    `begin` gets the run's id, also when it is the present one; `end` the id of the run that ended.
    """

    begin: Callable[[str], None]
    end: Callable[[str], None]

    def answer(self, path: str) -> Answer:
        """The answer to an allowed request for `path`."""
        words = path.removeprefix(RUN)
        run = urllib.parse.unquote(words.removesuffix(END))
        if not _ID.fullmatch(run):
            return HTTPStatus.BAD_REQUEST, "expected /run/ID or /run/ID/end with the name of the run's folder as ID"
        (self.end if words.endswith(END) else self.begin)(run)
        return HTTPStatus.OK, "noted"


@dataclass(frozen=True)
class Actions:
    """What this process does on request; None for what it does not do."""

    drains: DrainRequests | None = None
    restarts: RestartRequests | None = None
    runs: RunRequests | None = None

    def begin(self, request: Request) -> Callable[[], Reply | Work] | None:
        """What an allowed request has this process do; None if it does no such thing."""
        target = request.target
        if (drains := self.drains) is not None and target.startswith(DRAIN):
            return lambda: Work(Lane.ACT, lambda: Reply.words(*drains.answer(target)))
        if (runs := self.runs) is not None and target.startswith(RUN):
            return lambda: Work(Lane.ACT, lambda: Reply.words(*runs.answer(target)))
        if (restarts := self.restarts) is not None and target == RESTART:
            return lambda: restarts.reply(request.client)
        return None


class Routes:
    """One port of a process: pages to read, and actions."""

    def __init__(
        self,
        pages: Mapping[str, Callable[[Request], Reply]],
        actions: Actions | None = None,
        rules: Rules | None = None,
    ) -> None:
        """`pages`: what computes the answer to `GET`, by path."""
        self._pages, self._actions, self._rules = pages, actions or Actions(), rules or Rules()

    def __call__(self, request: Request) -> Reply | Work:
        """The answer, or what computes it. Callers are refused by `Rules.refusal` alone."""
        answer: Callable[[], Reply | Work] | None
        match request.method:
            case "GET":
                page = self._pages.get(request.path)
                answer = None if page is None else lambda: Work(Lane.READ, lambda: page(request))
                missing = f"expected {' or '.join(self._pages)}"
            case "POST":
                answer, missing = self._actions.begin(request), "nothing to POST to here"
            case _:
                return Reply.words(501, "expected GET or POST")
        if answer is None:
            return Reply.words(404, missing)
        refusal = self._rules.refusal(request)
        return answer() if refusal is None else Reply.words(*refusal)
