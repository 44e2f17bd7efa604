"""Which processes the roles are, asked of them, and their restart."""

import logging
from contextlib import suppress

from core.control.client import NoAnswerError, ask, key_of
from core.control.own_state import own_token
from core.control.server import PROCESS_HEADER
from core.inventory import Inventory, Task

log = logging.getLogger(__name__)


ANSWER_SECONDS = 2.0


def restart(task: Task, seconds: float) -> None:
    """Ask the role to end, so that its manager starts it again."""
    with suppress(NoAnswerError):
        key = key_of(own_token(), task.name)
        ask(task.metrics_address, "POST", "/restart", deadline_seconds=seconds, key=key)


def process_of(task: Task, seconds: float) -> str:
    """Return which process a role is; empty where it is not ready."""
    try:
        answer = ask(task.metrics_address, "GET", "/ready", deadline_seconds=seconds)
    except NoAnswerError:
        return ""
    if answer.status == 200:
        return answer.headers.get(PROCESS_HEADER.lower(), "")
    return ""


def server_processes(inventory: Inventory) -> dict[str, str]:
    """Return which process each parameter server is; empty where it does not say.

    Its metrics port names it in a header.
    """
    return {task.name: process_of(task, ANSWER_SECONDS) for task in inventory.of_role("ps")}
