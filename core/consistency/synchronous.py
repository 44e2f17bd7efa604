"""`mode: sync`: an update is a step; workers compute its slots from the same parameters."""

from dataclasses import dataclass

from pydantic import Field

from core.consistency import PATIENCE, Grant, Speeds, largest_subtree, updates_in_call
from core.inventory.extensions import ModeFacts
from core.inventory.fields import Section

RETRY_STEPS = 32
"""A worker without a grant for this many steps gets a slot: it may have become faster."""

SPARE = 8 / 7
"""Factor on a worker's share where that is a whole subtree: speeds that differ by less are noise.
A further part costs the fixed time of a part, so that a share may exceed by as much (in a
simulation of 2 to 16 workers by at most a half; more takes the work from workers that wait)."""

CALM_STEPS = 32
"""Steps that are dealt out one by one after a worker waited for others in vain: as many as until a
worker that was passed over is measured again."""

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
    """A grant under way: which worker computes it since when, and which repeats it."""

    task: int
    since: float
    late_at: float
    backup: int | None = None


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
    costs = "five round trips a step at most, and the slowest part"
    parameters = "servers"
    in_steps = True
    repeatable = True
    mechanism = "cluster.jobs.modes.steps:SynchronousMode"
    Options = SyncSettings

    @classmethod
    def several_a_call(cls, options: SyncSettings) -> bool:
        """Return whether a step waits for all of its slots."""
        return options.quorum is None

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
        self.slots = slots
        """Slots of a step."""
        self.speeds = speeds
        self.most_updates = 0
        self.step_seconds = 0.0
        self._refused: set[int] = set()
        """Workers that were too slow to get a part when they asked last."""
        self._backup_workers = backup_workers
        self._quorum = min(quorum or slots, slots)
        self._counted: dict[int, list[int]] = {}
        self._withdrawn: list[Grant] = []
        self._served_at: dict[int, int] = {}
        """Step of each worker's last grant, or of its first request."""
        self._passed_over: set[int] = set()
        """Workers refused while no part was under way, since the last worker got a grant for its
        speed."""
        self._lagging: set[int] = set()
        """Workers whose part was withdrawn, until they ask for another."""
        self._now = 0.0
        """Time of the last request."""
        self._calm_from = 0
        """Step before which parts are dealt out one by one: others waited in vain for a part."""
        self.begin(range(0))

    def begin(self, updates: range) -> None:
        """Start the first step, and forget the grants that were withdrawn."""
        self._step = updates.start
        self._stop = updates.stop
        self._withdrawn.clear()
        # Another training counts its steps from 0.
        self._calm_from = min(self._calm_from, updates.start + CALM_STEPS)
        self._parts: dict[Grant, _Part] = {}
        self._backups = 0
        self._arrived = [updates.start] * self.slots
        """The first step by slot whose part has not arrived."""
        self._open_step()

    def _open_step(self) -> None:
        self._dealt: dict[int, Grant] | None = None
        """The parts of the open step and those after it by worker, until the worker asks; None
        where they are dealt out one by one."""
        self._look_for_free_slots()
        self._first_late: float | None = None
        """The time before which no part is late, kept until the parts change."""
        self._served: set[int] = set()
        self._owed_now: tuple[frozenset[int], set[int]] = (frozenset(), set())
        # The last ones only: no step but the next asks what a step consists of.
        oldest = self._step - 1 - max(1, self.most_updates)
        self._counted = {step: slots for step, slots in self._counted.items() if step >= oldest}

    def _look_for_free_slots(self) -> None:
        """Note the runs of slots of the open step that are neither here nor under way."""
        is_taken = [arrived > self._step for arrived in self._arrived]
        for grant in self._parts:
            if self._step in grant.numbers:
                is_taken[grant.first : grant.first + grant.slots] = [True] * grant.slots
        for grant in (self._dealt or {}).values():
            is_taken[grant.first : grant.first + grant.slots] = [True] * grant.slots
        self._free: list[range] = []
        for slot in range(self.slots):
            if is_taken[slot]:
                continue
            if self._free and self._free[-1].stop == slot:
                self._free[-1] = range(self._free[-1].start, slot + 1)
            else:
                self._free.append(range(slot, slot + 1))

    def draw(self, task: int, live: frozenset[int], now: float) -> Grant | None:
        """Grant slots of the open step, and of steps after it, or a late part again, or None."""
        if self._step >= self._stop:
            return None
        self._now = now
        self._lagging.discard(task)
        self._served_at.setdefault(task, self._step)
        if self._dealt is None and len(self._free) == 1 and len(self._free[0]) == self.slots:
            self._deal(live)
        if self._dealt:
            if task in self._dealt:
                self._asked.add(task)
                return self._granted(task, self._dealt.pop(task), now)
            # It asks a second time, so all idle workers have asked: the others are busy or gone.
            if task in self._asked:
                self._take_back()
            self._asked.add(task)
        remaining = sum(map(len, self._free))
        if not remaining:
            return self._backup(task, now)
        if self._passes_over(task, remaining, live, now):
            self._refused.add(task)
            return None
        free = self._free[0]
        # The first round deals out the whole step, later ones what is left of it.
        share = self.speeds.share(task, live) * (remaining if task in self._served else self.slots)
        # A further part costs the fixed time again.
        spared = min(self.speeds.fixed_seconds * self.speeds.speed_of(task), (PATIENCE - 1) * share)
        limit = int(max(SPARE * share, share + spared))
        limit = max(1, min(limit, remaining - len(self._owed_of(live) - {task})))
        slots = largest_subtree(free.start, self.slots, min(limit, len(free)))
        self._free[0] = free[slots:]
        if not self._free[0]:
            del self._free[0]
        return self._granted(task, Grant(self._step, free.start, slots), now)

    def _granted(self, task: int, grant: Grant, now: float) -> Grant:
        self._parts[grant] = _Part(task, now, self._late_at(task, grant, now))
        self._first_late = None
        self._refused.discard(task)
        self._served.add(task)
        self._served_at[task] = self._step
        self._owed_now[1].discard(task)
        return grant

    def _deal(self, live: frozenset[int]) -> None:
        """Deal out the whole step at once, and as many after it as a call may have.

        Each worker gets neighbouring slots, as many as it computes while the others compute theirs.
        This needs the speeds of all, and calls that take more than one subtree.
        """
        self._dealt = {}
        self._asked: set[int] = set()
        """Workers that have asked since the step was dealt out."""
        judged = self.speeds.measured | self._refused
        workers = sorted(live - self._lagging)
        if (
            not self.most_updates
            or not workers
            or self._step < self._calm_from
            or not judged >= set(workers)
            or not self._owed_of(live) <= self._lagging
        ):
            return
        counts = self.speeds.dealt(self.slots, workers)
        self.step_seconds = max(
            self.speeds.seconds(slots, self.speeds.speed_of(task)) for task, slots in counts.items()
        )
        most = min(self.most_updates, self._stop - self._step)
        latest = max(self.speeds.latest_seconds(task, slots) for task, slots in counts.items())
        updates = updates_in_call(max(self.step_seconds, latest), most)
        first = 0
        for task, slots in counts.items():
            self._dealt[task] = Grant(self._step, first, slots, updates)
            first += slots
        self._look_for_free_slots()

    def _take_back(self) -> None:
        """Deal out what was dealt to workers that have not asked, one by one."""
        self._dealt = {}
        self._calm_from = self._step + CALM_STEPS
        self._look_for_free_slots()

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
        seconds = self.speeds.seconds(grant.slots, self.speeds.speed_of(task))
        # In all steps but the first it waits for the others' parts.
        seconds += (grant.updates - 1) * self.step_seconds
        return since + PATIENCE * seconds

    def _backup(self, task: int, now: float) -> Grant | None:
        if self._backups >= self._backup_workers:
            return None
        if self._first_late is None:
            times = (part.late_at for part in self._parts.values() if part.backup is None)
            self._first_late = min(times, default=float("inf"))
        if now < self._first_late - CLOCK_SECONDS:
            return None
        late = [grant for grant, part in self._parts.items() if now > part.late_at]
        for grant in late:
            part = self._parts[grant]
            # In several steps all wait for the slowest, and nothing says which one that is.
            alone = grant.updates == 1 or len(late) == 1
            if alone and part.task != task and part.backup is None:
                part.backup = task
                self._backups += 1
                self._first_late = None
                return grant
        return None

    def replied(self, grant: Grant, task: int, seconds: float, done: int | None = None) -> range:
        """Count the part in its first `done` steps.

        Fewer than all: the worker waited in vain for the others' parts. Steps are dealt out one by
        one then, for a while.
        """
        if done is None:
            done = grant.updates
        were_measured = self.speeds.are_measured
        self.speeds.observe(task, grant.slots, seconds, done)
        if self.speeds.are_measured and not were_measured:
            for granted, open_part in self._parts.items():
                open_part.late_at = self._late_at(open_part.task, granted, open_part.since)
            self._first_late = None
        before = self._step
        if grant not in self._parts:
            return range(before, before)
        self._lagging |= self._ended(grant, task) - {task}
        self._first_late = None
        reached = grant.update + done
        for slot in range(grant.first, grant.first + grant.slots):
            self._arrived[slot] = max(self._arrived[slot], reached)
        while self._step < reached and self._completed():
            pass
        if self._step > before:
            self._open_step()
        if done < grant.updates:
            self._take_back()
        return range(before, self._step)

    def _completed(self) -> bool:
        """Whether the open step is complete; then the next one is the open one."""
        came = [slot for slot, arrived in enumerate(self._arrived) if arrived > self._step]
        if len(came) < self._quorum:
            return False
        self._counted[self._step] = came
        self._step += 1
        self._arrived = [max(arrived, self._step) for arrived in self._arrived]
        over = [grant for grant in self._parts if grant.numbers.stop <= self._step]
        for grant in over:
            self._lagging |= self._ended(grant, None)
        self._withdrawn += over
        return True

    def _ended(self, grant: Grant, by: int | None) -> set[int]:
        """Forget a part that was under way, and ended by a worker; return those that compute it."""
        part = self._parts.pop(grant)
        if part.backup is None:
            return {part.task}
        self._backups -= 1
        if by != part.task:
            # Its reply counts no more, but it took so long at least.
            seconds = (self._now - part.since) / grant.updates
            self.speeds.observe(part.task, grant.slots, seconds, grant.updates)
        return {part.task, part.backup}

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
