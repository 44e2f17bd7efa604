"""Chooses faults to inject, drawn by a seed. Pure: no process, socket or clock.

A plan is text, `kill-worker:0.1,late:0.02,seed:7`: each fault with its probability for one
dispatched item, and perhaps `hold:UPDATE`, where a training waits. Draws come from a
counter-based generator (Philox, Salmon et al. 2011) under (seed, attempt) at the number of the
dispatch, so neither threads nor other faults shift later draws. The attempt is that of the
coordinator's process: after a restart it does not meet the same fault at the same place again.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from core.ground.errors import UsageError


class Fault(StrEnum):
    """A fault that can be injected."""

    KILL_WORKER = "kill-worker"
    STOP_WORKER = "stop-worker"
    CUT_WORKER = "cut-worker"
    KILL_PS = "kill-ps"
    KILL_COORDINATOR = "kill-coordinator"
    DROP_REPLY = "drop-reply"
    DUPLICATE = "duplicate"
    LATE = "late"
    CUT_PS = "cut-ps"


TAKES_WORKER = frozenset({Fault.KILL_WORKER, Fault.STOP_WORKER, Fault.CUT_WORKER, Fault.CUT_PS})
"""Faults after which a worker is out for a while."""

DEADLY = frozenset({Fault.KILL_PS, Fault.KILL_COORDINATOR})
"""Faults that end the coordinator: the job starts again and resumes from a checkpoint."""

BY_SUPERVISOR = frozenset({Fault.KILL_WORKER, Fault.STOP_WORKER, Fault.CUT_PS}) | DEADLY
"""Faults that need a supervisor: it restarts processes, and may reach into them."""

DELIVERY = frozenset({Fault.DROP_REPLY, Fault.DUPLICATE, Fault.LATE})
"""Faults of one call and its reply."""

SPARED_ATTEMPT = 4
"""Attempt from which on an item is spared: one that fails on every attempt would end the run."""


def deadly_faults(workers_hold_parameters: bool) -> frozenset[Fault]:
    """Return the faults that end the coordinator of a run.

    Those of workers do too where they hold the parameters.
    """
    if workers_hold_parameters:
        return DEADLY | TAKES_WORKER
    return DEADLY


DEADLY_LIMIT = 4
DEADLY_WINDOW_SECONDS = 600.0
"""Window of at most 4 deadly faults: `fab` restarts a job five times in ten minutes, so one restart
is left."""

HOLD = "hold"
HOLD_DIGITS = 18
"""More than any training has updates."""

PROMPT_SECONDS = 0.2
"""A fault hits a process at most this long after the dispatch, usually while the process computes.
"""

MARGIN_SECONDS = 1.0
"""Added to the time until a worker that a fault hit counts as able to work again."""


@dataclass(frozen=True)
class ChaosPlan:
    """The probability of each fault for one dispatched item.

    The sum is at most 1, and at most one fault hits.
    """

    probabilities: Mapping[Fault, float]
    seed: int = 0
    shortest_seconds: float = 0.5
    longest_seconds: float = 6.0
    """Bound of how long a worker is stopped or a reply held back."""
    holds: tuple[int, ...] = ()
    """Numbers of updates, rising, after each of which the training waits until it is let go."""

    @classmethod
    def parse(cls, text: str) -> "ChaosPlan":
        """The plan that `text` describes.

        Raises UsageError that names every problem and the known faults.
        """
        values: dict[str, str] = {}
        problems: list[str] = []
        holds: set[int] = set()
        for entry in text.split(","):
            name, _, value = (part.strip() for part in entry.partition(":"))
            if name == HOLD:
                holds.add(_update(value, problems))
                continue
            if name in values:
                problems.append(f"{name} comes twice")
            values[name] = value
        seed = values.pop("seed", "0")
        if not seed.isdecimal() or int(seed) >= 2**64:
            problems.append(f"seed: expected a whole number from 0 to 2^64 - 1, got {seed!r}")
        problems += [f"no fault is called {name!r}" for name in values if name not in set(Fault)]
        probabilities = {
            fault: _probability(fault, values[fault], problems)
            for fault in Fault
            if fault in values
        }
        if sum(probabilities.values()) > 1.0 + 1e-9:  # 0.1 + 0.2 + ... may be a little above
            problems.append(
                f"the probabilities are {sum(probabilities.values()):g} together, more than 1"
            )
        if not (probabilities or holds or problems):
            problems.append("no fault is named")
        if problems:
            raise UsageError(
                f"--chaos {text!r}: {'; '.join(problems)}. Expected FAULT:PROBABILITY,... of"
                f" {', '.join(Fault)}, and perhaps seed:NUMBER and hold:UPDATE"
            )
        return cls(probabilities, int(seed), holds=tuple(sorted(holds)))

    def refuse(self, job: str, *, supervised: bool, goes_on: bool) -> None:
        """Raise UsageError if these faults cannot be injected into `job`.

        `supervised`: whether there is a supervisor; `goes_on`: whether the job can be resumed.
        """
        deadly = [fault for fault in self.probabilities if fault in DEADLY]
        if deadly and not goes_on:
            raise UsageError(
                f"--chaos {', '.join(deadly)}: only train resumes after that; {job} would start"
                " again from nothing"
            )
        if self.holds and not goes_on:
            raise UsageError(f"--chaos hold: only train has updates to wait at; {job} has none")
        helpless = [fault for fault in self.probabilities if fault in BY_SUPERVISOR]
        if helpless and not supervised:
            raise UsageError(
                f"--chaos {', '.join(helpless)} needs a supervisor, which starts again what was"
                " killed: start the job by fab, with connection: local"
            )


def _update(value: str, problems: list[str]) -> int:
    if value.isdecimal() and len(value) <= HOLD_DIGITS:
        return int(value)
    problems.append(f"{HOLD}: expected a number of updates, 0 or more, got {value!r}")
    return 0


def _probability(name: str, value: str, problems: list[str]) -> float:
    try:
        probability = float(value)
    except ValueError:
        probability = float("nan")
    if not 0.0 <= probability <= 1.0:
        problems.append(f"{name}: expected a probability from 0 to 1, got {value!r}")
        return 0.0
    return probability


@dataclass(frozen=True)
class Strike:
    """One fault, on the item's worker, or on parameter server or coordinator number `task`."""

    fault: Fault
    task: int
    dispatch: int
    delay_seconds: float
    """Time from the dispatch to the fault of a process."""
    lasts_seconds: float
    """Time for which a worker stays stopped, or a reply is held back."""
    server: int = 0
    """The parameter server from which the worker is cut off."""

    @property
    def target(self) -> str:
        """`worker:1`, `ps:0`, `coordinator:0`."""
        role = {Fault.KILL_PS: "ps", Fault.KILL_COORDINATOR: "coordinator"}.get(
            self.fault, "worker"
        )
        return f"{role}:{self.task}"


@dataclass
class Chaos:
    """Chooses the fault of each dispatch of one coordinator process."""

    plan: ChaosPlan
    attempt: int = 0
    """Number of coordinator processes that this run had before."""
    servers: int = 1
    deadly: frozenset[Fault] = DEADLY
    """Faults that count for DEADLY_LIMIT."""
    dispatches: int = field(default=0, init=False)
    _down_until: dict[int, float] = field(default_factory=dict, init=False)

    def strike(
        self,
        task: int,
        attempts: int,
        live: Collection[int],
        now: float,
        deadly: Callable[[float], int],
    ) -> Strike | None:
        """Return the fault, if any, of the next dispatch to worker `task`.

        It is the item's attempt number `attempts`, from 1.

        It spares an item with many attempts; the last worker of `live` that none of our faults has
        hit or is about to hit; and the job itself after enough deadly faults: `deadly` counts those
        in the last seconds. `now` is in seconds of any clock.
        """
        number = self.dispatches
        self.dispatches = self.dispatches + 1
        which, when, how_long = self._drawn(number)
        fault = self._fault(which)
        if fault is None or attempts >= SPARED_ATTEMPT:
            return None
        if fault in self.deadly and deadly(DEADLY_WINDOW_SECONDS) >= DEADLY_LIMIT:
            return None
        plan = self.plan
        delay = PROMPT_SECONDS * when
        lasts = plan.shortest_seconds + how_long * (plan.longest_seconds - plan.shortest_seconds)
        if fault in TAKES_WORKER:
            if not any(other != task and self._down_until.get(other, now) <= now for other in live):
                return None
            self._down_until[task] = (
                now + delay + MARGIN_SECONDS + lasts * (fault is Fault.STOP_WORKER)
            )
        server = int(how_long * self.servers)
        struck = {Fault.KILL_PS: server, Fault.KILL_COORDINATOR: 0}.get(fault, task)
        return Strike(fault, struck, number, delay, lasts, server * (fault is Fault.CUT_PS))

    def _drawn(self, number: int) -> tuple[float, float, float]:
        """Three numbers in [0, 1) for this dispatch."""
        key = np.array([self.plan.seed, self.attempt], np.uint64)
        generator = np.random.Philox(key=key, counter=[0, number, 0, 0])
        first, second, third = np.random.Generator(generator).random(3)
        return float(first), float(second), float(third)

    def _fault(self, which: float) -> Fault | None:
        bound = 0.0
        for fault in Fault:
            bound += self.plan.probabilities.get(fault, 0.0)
            if which < bound:
                return fault
        return None
