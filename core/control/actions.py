"""What callers may have this process do: drain a worker, restart, name the run.

`Rules` decide who may.
"""

import re
import threading
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus

from core.control.requests import DRAIN, RESTART, RUN, Reply, Request, Rules

USUAL_SECONDS = 60.0
LONGEST_SECONDS = 3600.0
END = "/end"
READERS = 8
"""Pages that are computed at one time; other requests for them wait."""
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")

Answer = tuple[HTTPStatus, str]


@dataclass(frozen=True)
class Actions:
    """What this process does on request; None for what it does not do.

    `POST /drain/worker:3?seconds=60` drains a worker. `drain` gets its name and the time that the
    client waits, and answers within it.

    `POST /restart` ends a role process, so that its supervisor starts another one: the coordinator
    cannot log in on the other nodes, and what a dead coordinator left on their servers (its
    variables, its contexts for 600 s) has to go before the next one begins. `restart` gets the
    address of the caller, after the answer was sent. A `fresh` process, one that still starts,
    stays: it holds nothing yet, and its supervisor would count its end as a failed start.

    `POST /run/ID` names the run in the log lines of a role process, `POST /run/ID/end` ends that.
    `begin_run` gets the run's id, also when it is the present one; `end_run` the id of the run that
    ended, and returns what ends the process after the answer, if something does.
    """

    drain: Callable[[str, float], Answer] | None = None
    restart: Callable[[str], None] | None = None
    fresh: Callable[[], bool] = lambda: False
    begin_run: Callable[[str], None] | None = None
    end_run: Callable[[str], Callable[[], None] | None] | None = None

    def begin(self, request: Request) -> Callable[[], Reply] | None:
        """Return what an allowed request has this process do; None if it does no such thing."""
        target = request.target
        if (drain := self.drain) is not None and target.startswith(DRAIN):
            return lambda: Reply.words(*_drained(drain, target))
        note: Callable[[str], Callable[[], None] | None] | None = self.begin_run
        if target.removeprefix(RUN).endswith(END):
            note = self.end_run
        if note is not None and target.startswith(RUN):
            return lambda: _noted(note, target)
        if (restart := self.restart) is not None and target == RESTART:
            return lambda: self._restarted(restart, request.client)
        return None

    def _restarted(self, restart: Callable[[str], None], client: str) -> Reply:
        if self.fresh():
            return Reply.words(200, "starting already")
        # In a thread of its own: what it does may end the server that has answered.
        obeying = threading.Thread(target=restart, args=(client,), name="restart", daemon=True)
        return Reply.words(202, "restarting", obeying.start)


def _drained(drain: Callable[[str, float], Answer], target: str) -> Answer:
    path, _, query = target.removeprefix(DRAIN).partition("?")
    try:
        parameters = dict(
            urllib.parse.parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
        )
        seconds = float(parameters.pop("seconds", USUAL_SECONDS))
        if parameters or not 0.0 <= seconds <= LONGEST_SECONDS:
            raise ValueError(query)
    except ValueError:
        return (
            HTTPStatus.BAD_REQUEST,
            f"expected ?seconds=N with N from 0 to {LONGEST_SECONDS:.0f}, got ?{query}",
        )
    return drain(urllib.parse.unquote(path), seconds)


def _noted(note: Callable[[str], Callable[[], None] | None], target: str) -> Reply:
    run = urllib.parse.unquote(target.removeprefix(RUN).removesuffix(END))
    if not _ID.fullmatch(run):
        return Reply.words(
            HTTPStatus.BAD_REQUEST,
            "expected /run/ID or /run/ID/end with the name of the run's folder as ID",
        )
    then = note(run)
    if then is None:
        return Reply.words(HTTPStatus.OK, "noted")
    return Reply.words(HTTPStatus.ACCEPTED, "restarting", then)


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
        self._reading = threading.Semaphore(READERS)

    def __call__(self, request: Request) -> Reply:
        """The answer. Callers are refused by `Rules.refusal` alone."""
        answer: Callable[[], Reply] | None
        match request.method:
            case "GET":
                page = self._pages.get(request.path)
                if page is None:
                    answer = None
                else:
                    answer = partial(self._read, page, request)
                missing = f"expected {' or '.join(self._pages)}"
            case "POST":
                answer = self._actions.begin(request)
                missing = "nothing to POST to here"
            case _:
                return Reply.words(501, "expected GET or POST")
        if answer is None:
            return Reply.words(404, missing)
        refusal = self._rules.refusal(request)
        if refusal is None:
            return answer()
        return refusal

    def _read(self, page: Callable[[Request], Reply], request: Request) -> Reply:
        with self._reading:
            return page(request)
