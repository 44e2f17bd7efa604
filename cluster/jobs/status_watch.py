"""Whoever watches a job from its preparation to its end: the state, its history, the live page."""

import logging
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from cluster.inventory import Inventory
from cluster.jobs.lifecycle import Job, Watch
from cluster.jobs.live_page import open_page
from cluster.jobs.role_reader import RoleReader
from cluster.jobs.run_history import RunHistory
from cluster.jobs.status_observer import RunClock, StatusObserver, fresh_state
from cluster.status.history_file import read_records
from cluster.status.records import state_of, take
from cluster.status.state import ENDED
from cluster.status.view import JobState

LOOK_SECONDS = 0.5


class _Warnings(logging.Handler):
    """Warnings of the run's log are lines of its event log."""

    def __init__(self, observer: StatusObserver) -> None:
        super().__init__(logging.WARNING)
        self._observer = observer

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._observer.tell("warning", record.getMessage())
        except Exception:  # a log line that cannot be formatted
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name is logging's
        pass


class StatusWatch(Watch):
    """The watch of every job. Its threads end with it."""

    def __init__(self, inventory: Inventory, job: str, say: Callable[[str], None]) -> None:
        """`say`: one line for the person at the terminal."""
        self._inventory, self._job, self._say = inventory, job, say
        self.observer = StatusObserver(inventory, job)
        self._history: RunHistory | None = None
        self._end = threading.Event()
        self._stack = ExitStack()

    def __enter__(self) -> "StatusWatch":
        handler = _Warnings(self.observer)
        logging.getLogger().addHandler(handler)
        self._stack.callback(logging.getLogger().removeHandler, handler)
        page = open_page(self._inventory, self.observer.view, self._say)
        if page is not None:
            self._stack.callback(page.close)
        reader = RoleReader(self._inventory, self.observer, lambda: page is not None and page.watched)
        self._stack.callback(reader.close)
        looking = threading.Thread(target=self._look, name="status", daemon=True)
        looking.start()
        self._stack.callback(looking.join)
        self._stack.callback(self._end.set)
        self.observer.stage("preparing")
        return self

    def __exit__(
        self, _type: type[BaseException] | None, value: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self.observer.view().state not in ENDED:
            self.ended("failed", str(value) if value is not None else None)
        if self._history is not None:
            self._history.close()
        self._stack.close()

    def begun(self, job: Job, folder: Path, resumed: bool) -> None:
        """See Watch."""
        described = job.result().get("model") or {}
        if resumed:
            self._go_on(folder)
        now = self.observer.clock()
        with self.observer.state() as state:
            if not state.run:
                state.began(folder.name, now)
            if state.training is not None:
                state.training.parameters = described.get("parameters")
        self._history = RunHistory(self.observer, folder)
        self.observer.urgent = self._keep

    def _keep(self) -> None:
        if self._history is not None:
            self._history.keep()

    def _go_on(self, folder: Path) -> None:
        """Take over what earlier coordinators left, behind it what this one has told so far."""
        records = list(read_records(folder))
        found = state_of(records)
        if found is None:
            return
        started, latest = found[0].started, found[1]
        clock = RunClock(started, latest)
        state = fresh_state(self._inventory, self._job, started)
        take(state, records)
        state.run = folder.name
        now = clock()
        state.resumed(latest, now)
        with self.observer.state() as before:
            told = before.log.kept
            state.progress = replace(before.progress) if before.progress is not None else None
        for event in told:
            state.tell(event.kind, event.text, now)
        state.roles["coordinator:0"].state = "up"
        self.observer.replace(state, clock)

    def ended(self, status: JobState, reason: str | None) -> None:
        """See Watch."""
        now = self.observer.clock()
        with self.observer.state() as state:
            state.end(status, reason, now)
        if self._history is not None:
            self._history.close()  # before anybody makes a report of it

    def _look(self) -> None:
        while not self._end.wait(LOOK_SECONDS):
            self.observer.look()
