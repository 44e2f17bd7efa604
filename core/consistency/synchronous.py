"""`mode: sync`: an update is a step; workers compute its slots from the same parameters."""

from dataclasses import dataclass

from pydantic import Field

from core.consistency import PATIENCE, Grant, Speeds, largest_subtree
from core.inventory.extensions import ModeFacts
from core.inventory.fields import Section

RETRY_STEPS = 32
"""A worker without a grant for this many steps gets a slot: it may have become faster."""

SPARE = 8 / 7
"""Factor on a worker's share where that is a whole subtree: speeds that differ by less are noise.
A further part costs the fixed time of a part, so that a share may exceed by as much (in a
simulation of 2 to 16 workers by at most a half; more takes the work from workers that wait)."""

CLOCK_SECONDS = 1e-6
"""More than the rounding error of a sum of times, less than matters."""


class SyncSettings(Section):
    """`mode: sync`."""

    quorum: int | None = Field(
        None,
        ge=1,
        le=128,
        description="slots that make a step; null waits for all, which gives the same bits",
    )
    backup_workers: int = Field(
        1, ge=0, le=1024, description="workers that may repeat slow parts of others"
    )


@dataclass
class _Part:
    """A grant under way: which worker computes it since when, and how many repeat it."""

    task: int
    since: float
    late_at: float
    backups: int = 0


class Synchronous(ModeFacts):
    """One step after the other, dealt out by measured speed as aligned subtrees.

    All of them must arrive, or `quorum` of them (Chen et al., arXiv 1604.00981: then the result
    depends on which were late). An idle worker repeats a part that takes too long, at most
    `backup_workers` at a time; the first copy counts and the parameter servers drop the other.
    """

    name = "sync"
    summary = "waits for all of a step"
    update = "one step: a batch, computed in parts by all workers"
    waits = "all workers, once a step"
    costs = "three round trips a step, and the slowest part"
    parameters = "servers"
    in_steps = True
    repeatable = True
    mechanism = "cluster.jobs.modes.steps:SynchronousMode"
    Options = SyncSettings

    @classmethod
    def same_bits(cls, options: SyncSettings) -> bool:
        """Return False with a quorum: the result then depends on which workers were late."""
        return options.quorum is None

    @classmethod
    def server_vectors(cls, slots: int) -> int:
        """Count a row for each slot, and their sum."""
        return slots + 1

    def __init__(
        self, slots: int, speeds: Speeds, quorum: int | None = None, backup_workers: int = 0
    ) -> None:
        self._slots = slots
        self.speeds = speeds
        self._backup_workers = backup_workers
        self._quorum = min(quorum or slots, slots)
        self._counted: dict[int, list[int]] = {}
        self._withdrawn: list[Grant] = []
        self._served_at: dict[int, int] = {}
        """Step of each worker's last grant, or of its first request."""
        self._passed_over: set[int] = set()
        """Workers refused while no part was under way, since the last worker got a grant for its
        speed."""
        self.begin(range(0))

    def begin(self, updates: range) -> None:
        """Start the first step, and forget the grants that were withdrawn."""
        self._step = updates.start
        self._stop = updates.stop
        self._withdrawn.clear()
        self._open_step()

    def _open_step(self) -> None:
        self._cursor = 0
        self._parts: dict[Grant, _Part] = {}
        self._backups = 0
        self._first_late: float | None = None
        """The time before which no part is late, kept until the parts change."""
        self._came: list[int] = []
        self._served: set[int] = set()
        self._owed_now: tuple[frozenset[int], set[int]] = (frozenset(), set())
        # The last two only: no step but the next asks what a step consists of.
        self._counted = {
            step: slots for step, slots in self._counted.items() if step >= self._step - 2
        }

    def draw(self, task: int, live: frozenset[int], now: float) -> Grant | None:
        """Grant a subtree of the open step, or a late part a second time, or None."""
        if self._step >= self._stop:
            return None
        remaining = self._slots - self._cursor
        if not remaining:
            return self._backup(task, now)
        if self._passes_over(task, remaining, live, now):
            return None
        # The first round deals out the whole step, later ones what is left of it.
        share = self.speeds.share(task, live) * (remaining if task in self._served else self._slots)
        # A further part costs the fixed time again.
        spared = min(self.speeds.fixed_seconds * self.speeds.speed_of(task), (PATIENCE - 1) * share)
        limit = int(max(SPARE * share, share + spared))
        limit = min(limit, remaining - len(self._owed_of(live) - {task}))
        grant = Grant(
            self._step, self._cursor, largest_subtree(self._cursor, self._slots, max(1, limit))
        )
        self._cursor += grant.slots
        self._parts[grant] = _Part(task, now, self._late_at(task, grant, now))
        self._first_late = None
        self._served.add(task)
        self._served_at[task] = self._step
        self._owed_now[1].discard(task)
        return grant

    def _owed(self, task: int) -> bool:
        """Whether a worker is due for another measurement of its speed."""
        return self._step - self._served_at.get(task, self._step) >= RETRY_STEPS

    def _owed_of(self, live: frozenset[int]) -> set[int]:
        """Return the live workers that are due.

        They are counted once a step, because only a grant changes them within it.
        """
        if self._owed_now[0] is not live and self._owed_now[0] != live:
            self._owed_now = live, {other for other in live if self._owed(other)}
        return self._owed_now[1]

    def _passes_over(self, task: int, remaining: int, live: frozenset[int], now: float) -> bool:
        """Whether the others finish the step sooner without this worker."""
        self._served_at.setdefault(task, self._step)

        def busy() -> float:
            granted_parts = self._parts.items()
            return sum(
                self.speeds.left(part.task, grant.slots, now - part.since)
                for grant, part in granted_parts
            )

        if self.speeds.worth_while(task, 1, remaining, busy, live):
            self._passed_over.clear()
            return False
        if self._owed(task):
            return False
        if self._parts:
            return True
        # The step is idle and this worker asks a second time, so all idle workers have asked
        # meanwhile: the faster ones no longer answer, and it may take minutes until they are
        # dropped.
        again = task in self._passed_over
        self._passed_over.add(task)
        return not again

    def _late_at(self, task: int, grant: Grant, since: float) -> float:
        """Return when a part takes too long, by the speeds of now; never before there are any."""
        if not self.speeds.are_measured:
            return float("inf")
        return since + PATIENCE * self.speeds.seconds(grant.slots, self.speeds.speed_of(task))

    def _backup(self, task: int, now: float) -> Grant | None:
        if self._backups >= self._backup_workers:
            return None
        if self._first_late is None:
            times = (part.late_at for part in self._parts.values() if not part.backups)
            self._first_late = min(times, default=float("inf"))
        if now < self._first_late - CLOCK_SECONDS:
            return None
        for grant, part in self._parts.items():
            if part.task != task and not part.backups and now > part.late_at:
                part.backups += 1
                self._backups += 1
                self._first_late = None
                return grant
        return None

    def replied(self, grant: Grant, task: int, seconds: float) -> bool:
        """Count the part, and open the next step once the quorum is there."""
        were_measured = self.speeds.are_measured
        self.speeds.observe(task, grant.slots, seconds)
        if self.speeds.are_measured and not were_measured:
            for granted, open_part in self._parts.items():
                open_part.late_at = self._late_at(open_part.task, granted, open_part.since)
            self._first_late = None
        if grant.update == self._step:
            part = self._parts.pop(grant, None)
        else:
            part = None
        if part is None:
            return False
        self._backups -= part.backups
        self._first_late = None
        self._came += range(grant.first, grant.first + grant.slots)
        if len(self._came) < self._quorum:
            return False
        self._counted[self._step] = sorted(self._came)
        self._withdrawn += self._parts
        self._step += 1
        self._open_step()
        return True

    def exhausted(self) -> bool:
        """Return whether every step is complete."""
        return self._step >= self._stop

    def withdrawn(self) -> list[Grant]:
        """Return the parts of complete steps that were still under way."""
        grants = self._withdrawn
        self._withdrawn = []
        return grants

    def counted(self, update: int) -> list[int]:
        """Return the slots that made the step complete."""
        return self._counted[update]
