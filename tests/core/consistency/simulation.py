"""A cluster without sockets or clocks.

Workers of given speeds and faults under one policy, as dispatchers treat it.

What a killed or overdue worker had under way goes to an idle worker before the policy is asked for
anything new; the first reply to a grant counts, later ones are not heard; a stopped worker stays in
the cluster until it is fenced.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from core.consistency import Grant, Policy

DEADLINE_SECONDS = 30.0
FENCED_SECONDS = 90.0


@dataclass(frozen=True, order=True)
class Fault:
    """At `time` seconds the worker is killed, stopped, goes on, or comes (back)."""

    time: float
    what: Literal["kill", "stop", "go on", "join"]
    task: int


@dataclass
class Seen:
    """What happened in a run."""

    seconds: float = 0.0
    complete: list[int] = field(default_factory=list)
    """Updates in the order in which they were completed."""
    drawn: list[tuple[int, Grant, bool]] = field(default_factory=list)
    """By whom, what, and whether it was under way already."""
    slots: Counter[int] = field(default_factory=Counter)
    """Slots that counted, by worker."""
    most_backups: int = 0


class Simulation:
    """One stretch of updates from beginning to end."""

    def __init__(
        self, policy: Policy, seconds: Mapping[int, float], faults: Iterable[Fault] = ()
    ) -> None:
        """`seconds` a slot of each worker.

        Those whose first fault is `join` are absent until then.
        """
        self.policy, self._seconds = policy, dict(seconds)
        first: dict[int, str] = {}
        self._events: list[tuple[float, int, str, int, int]] = []
        for fault in sorted(faults):
            first.setdefault(fault.task, fault.what)
            self._push(fault.time, fault.what, fault.task)
        self.live = {task for task in seconds if first.get(task) != "join"}
        self._stopped: set[int] = set()
        self._busy: dict[int, tuple[Grant, int, float]] = {}
        self._attempts = 0
        self._open: set[Grant] = set()
        self._pending: list[Grant] = []
        self._backups: Counter[Grant] = Counter()
        self.now, self.seen = 0.0, Seen()

    def _push(self, time: float, what: str, task: int, attempt: int = 0) -> None:
        heapq.heappush(self._events, (time, len(self._events), what, task, attempt))

    @property
    def idle(self) -> list[int]:
        return [task for task in sorted(self.live - self._stopped) if task not in self._busy]

    def run(self, updates: range) -> Seen:
        """Until everything is done. Fails if the cluster stalls although somebody could work."""
        self.policy.begin(updates)
        while True:
            for gone in self.policy.withdrawn():
                self._forget(gone)
            self._assign()
            if self.policy.exhausted() and not self._open:
                self.seen.seconds = self.now
                return self.seen
            assert self._progresses(), (
                f"stalled at {self.now} with {self.idle} idle and {self._open} open"
            )
            self.now, _, what, task, attempt = heapq.heappop(self._events)
            self._happen(what, task, attempt)

    def _progresses(self) -> bool:
        """Whether somebody works who can answer, or whoever could is away.

        Nobody idle may be left with nothing.
        """
        answering = any(task not in self._stopped for task in self._busy)
        return bool(self._events) and (answering or not self.idle or bool(self._open))

    def _assign(self) -> None:
        # Twice: who is asked a second time knows that all who were idle have been asked.
        for task in self.idle * 2:
            if task in self._busy:
                continue
            if self._pending:
                self._dispatch(task, self._pending.pop(0))
                continue
            grant = self.policy.draw(task, frozenset(self.live), self.now)
            if grant is None:
                continue
            again = grant in self._open
            self.seen.drawn.append((task, grant, again))
            self._open.add(grant)
            self._backups[grant] += again
            self.seen.most_backups = max(
                self.seen.most_backups, sum(map(self._backups.__getitem__, self._open))
            )
            self._dispatch(task, grant)

    def _dispatch(self, task: int, grant: Grant) -> None:
        self._attempts += 1
        self._busy[task] = (grant, self._attempts, self.now)
        self._push(self.now + self._seconds[task] * grant.slots, "reply", task, self._attempts)

    def _happen(self, what: str, task: int, attempt: int) -> None:
        match what:
            case "reply":
                self._reply(task, attempt)
            case "join":
                self.live.add(task)
            case "kill":
                self._leave(task)
            case "stop" if task in self.live:
                self._stopped.add(task)
                if task in self._busy:
                    attempt = self._busy[task][1]
                else:
                    attempt = 0
                self._push(self.now + DEADLINE_SECONDS, "overdue", task, attempt)
                self._push(self.now + FENCED_SECONDS, "fenced", task)
            case "overdue" if (
                task in self._stopped and task in self._busy and self._busy[task][1] == attempt
            ):
                self._put_back(self._busy[task][0])
            case "fenced" if task in self._stopped:
                self._leave(task)
            case "go on" if task in self._stopped:
                self._stopped.discard(task)
                if task in self._busy:
                    self._push(self.now, "reply", task, self._busy[task][1])

    def _reply(self, task: int, attempt: int) -> None:
        if task in self._stopped or task not in self._busy or self._busy[task][1] != attempt:
            return
        grant, _, since = self._busy.pop(task)
        if grant in self._open:
            self._forget(grant)
            self.seen.slots[task] += grant.slots
            if self.policy.replied(grant, task, self.now - since):
                self.seen.complete.append(grant.update)

    def _leave(self, task: int) -> None:
        self.live.discard(task)
        self._stopped.discard(task)
        if task in self._busy:
            self._put_back(self._busy.pop(task)[0])

    def _put_back(self, grant: Grant) -> None:
        at_it = any(
            other == grant and task not in self._stopped
            for task, (other, _, _) in self._busy.items()
        )
        if grant in self._open and not at_it and grant not in self._pending:
            self._pending.insert(0, grant)

    def _forget(self, grant: Grant) -> None:
        self._open.discard(grant)
        del self._backups[grant]
        if grant in self._pending:
            self._pending.remove(grant)
