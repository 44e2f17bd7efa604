"""What the coordinator answers to `POST /drain/worker:3`."""

import re
from collections.abc import Mapping
from http import HTTPStatus

from cluster.engine.changes import Drain
from cluster.engine.dispatcher import Dispatcher

ANSWERS: Mapping[Drain, tuple[HTTPStatus, str]] = {
    Drain.DRAINED: (HTTPStatus.OK, "drained"),
    Drain.UNKNOWN: (HTTPStatus.NOT_FOUND, "the job has no such worker"),
    Drain.HOLDS_PARAMETERS: (
        HTTPStatus.CONFLICT,
        "it holds a part of the parameters in mode allreduce: without it the job goes back to its last checkpoint",
    ),
    Drain.LAST: (HTTPStatus.CONFLICT, "no other worker was there to take its work"),
    Drain.BUSY: (HTTPStatus.SERVICE_UNAVAILABLE, "still at its work when the time was up"),
}


def drain(dispatcher: Dispatcher | None, name: str, seconds: float) -> tuple[HTTPStatus, str]:
    """Drain the worker of this name; status and words of the answer. `dispatcher` is None while there is none."""
    if not re.fullmatch(r"worker:[0-9]{1,6}", name):
        return ANSWERS[Drain.UNKNOWN]
    if dispatcher is None:
        return HTTPStatus.CONFLICT, "the job is still starting or over: nobody has any work"
    return ANSWERS[dispatcher.drain(int(name.removeprefix("worker:")), seconds)]
