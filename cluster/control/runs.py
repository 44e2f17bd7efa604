"""Telling a role process which run it works on, with `POST /run/ID` on its metrics port: its log lines name the run."""

import re
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

from cluster.control.rules import Acting

PREFIX = "/run/"
END = "/end"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")

Answer = tuple[HTTPStatus, str]


@dataclass(frozen=True)
class RunRequests:
    """Requests are taken from the address `coordinator`, where there is one, and from the machine itself.

    `begin` gets the run's id, also when it is the present one; `end` the id of the run that is over.
    """

    coordinator: str | None
    begin: Callable[[str], None]
    end: Callable[[str], None]

    @property
    def acting(self) -> Acting:
        """Who may."""
        known = () if self.coordinator is None else (self.coordinator,)
        return Acting("only the coordinator's node may say which run this is", known)

    def answer(self, path: str) -> Answer:
        """To a request for `path`, `/run/ID` or `/run/ID/end`, that is allowed."""
        words = path.removeprefix(PREFIX)
        run = urllib.parse.unquote(words.removesuffix(END))
        if not _ID.fullmatch(run):
            return HTTPStatus.BAD_REQUEST, "expected /run/ID or /run/ID/end with the name of the run's folder as ID"
        (self.end if words.endswith(END) else self.begin)(run)
        return HTTPStatus.OK, "noted"
