"""Stories of `tests.engine.scenario`: one worker has a bad path to the parameter server, another a good one."""

import threading
from typing import Any

from cluster.engine.messages import Outcome
from cluster.engine.worker_state import Worker
from cluster.server.sockets import cut
from tests.engine.processes import Roles
from tests.engine.story import Story


class BadPath:
    """Shuts a worker's connections to ps:0 over and over while it is entered. Nobody else's are touched."""

    def __init__(self, roles: Roles, worker: str) -> None:
        self._roles, self._worker = roles, worker
        self._mended = threading.Event()
        self._thread: threading.Thread | None = None
        self.shut = 0

    def reset(self) -> None:
        """Once: as a network does that fails for a moment."""
        self.shut += cut(self._roles.running[self._worker].pid, {("127.0.0.1", self._roles.ports["ps:0"])})

    def begin(self) -> None:
        """From now on, until `mend`."""
        self._thread = threading.Thread(target=self._cut, daemon=True)
        self._thread.start()

    def _cut(self) -> None:
        while not self._mended.wait(0.01):
            self.reset()

    def mend(self) -> None:
        """Let it connect again."""
        self._mended.set()
        if self._thread is not None:
            self._thread.join()


def begun(roles: Roles) -> tuple[Story, BadPath, Worker]:
    """Two workers have joined; worker 0, as the coordinator sees it, and its path, which is still good."""
    story = Story(roles, spin=2_000)
    story.dispatcher.wait_for_workers(2, 30.0)
    return story, BadPath(roles, "worker:0"), story.dispatcher.membership.workers[0]


def path_reset(roles: Roles) -> dict[str, Any]:
    """One TCP reset between worker 0 and the parameter server, in mid-run."""
    story, path, left = begun(roles)

    def hook(outcome: Outcome) -> None:
        # Again while it had no call under way that could fail of it.
        if story.done >= 50 and story.done % 20 == 0 and not left.departures:
            path.reset()
        back.append(outcome.task == 0 and left.departures > 0)

    back: list[bool] = []
    first = story.run(200, hook, until=lambda: any(back))
    return story.end(first=first, shut=path.shut)


def path_cut(roles: Roles) -> dict[str, Any]:
    """Worker 0 cannot reach the parameter server for a long while, and worker 1 can."""
    story, path, left = begun(roles)

    def hook(_: Outcome) -> None:
        if story.done == 50:
            path.begin()

    first = story.run(200, hook, until=lambda: left.departures >= 5)
    path.mend()
    back: list[int] = []
    second = story.run(100, lambda outcome: back.append(outcome.task), until=lambda: 0 in back)
    return story.end(first=first, second=second, shut=path.shut)
