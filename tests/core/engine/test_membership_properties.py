"""Whatever happens in whatever order.

Every item is delivered exactly once, and nobody is asked for two things.
"""

from collections.abc import Iterable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from core.engine.membership import Membership, Phase, TimeLimits
from core.engine.workers import (
    Abandon,
    Add,
    Answered,
    Deliver,
    Dispatch,
    DrainAsked,
    Drop,
    Event,
    Failed,
    Fence,
    GiveUp,
    Instruction,
    Item,
    Joined,
    JoinFailed,
    Probed,
    ProbeSuspect,
    ReleaseWorker,
    Replied,
    Silent,
)

TIMING = TimeLimits(
    first_reply_seconds=1.0,
    floor_seconds=1.0,
    slow_factor=1.0,
    abandon_seconds=1.0,
    drained_seconds=1.0,
)
TURNS_TO_FINISH = 200


class Cluster(RuleBasedStateMachine):
    """A dispatcher without sockets.

    It carries out instructions and remembers what a worker may still do.
    """

    @initialize(workers=st.integers(1, 4))
    def connect(self, workers: int) -> None:
        self.core = Membership(range(workers), TIMING)
        self.now = 0.0
        self.scheduled: dict[int, Item] = {}
        self.delivered: list[int] = []
        self.defined: set[int] = set()
        self.calls: dict[int, Dispatch] = {}
        self.abandoned: list[Dispatch] = []
        self.probing: set[int] = set()
        self.adding: list[int] = []
        self.given_up = False

    def carry_out(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Dispatch(task, item):
                    assert task in self.defined, "sent to a worker that is not in the cluster"
                    assert task not in self.calls, "two items on one worker"
                    assert item.id not in self.delivered, "sent although its outcome is known"
                    self.calls[task] = instruction
                case Deliver(outcome):
                    assert self.scheduled[outcome.item.id] is outcome.item
                    self.delivered.append(outcome.item.id)
                case Add(task):
                    assert task not in self.defined
                    self.adding.append(task)
                case Drop(task):
                    self.defined.discard(task)
                    assert task not in self.calls, "dropped while its call is open: that blocks"
                case ReleaseWorker(task):
                    self.defined.discard(task)
                    assert task not in self.calls, "taken out while its call is open"
                case Abandon(task):
                    self.abandoned.append(self.calls.pop(task))
                case Fence(task):
                    assert task in self.defined
                case ProbeSuspect(task):
                    assert task in self.defined
                    self.probing.add(task)
                case GiveUp():
                    self.given_up = True

    def tell(self, event: Event) -> None:
        self.carry_out(self.core.handle(event, self.now))

    def tick(self, seconds: float) -> None:
        self.now += seconds
        self.carry_out(self.core.tick(self.now))

    def answer(self, task: int) -> None:
        call = self.calls.pop(task)
        self.tell(Replied(task, call.attempt, call.item.id, 0.1))

    def add(self, task: int) -> None:
        self.adding.remove(task)
        self.defined.add(task)
        self.tell(Joined(task))

    def one(self, data: st.DataObject, tasks: Iterable[int]) -> int:
        return data.draw(st.sampled_from(sorted(tasks)))

    @precondition(lambda self: not self.given_up)
    @rule(count=st.integers(1, 3))
    def schedule(self, count: int) -> None:
        new = [Item(len(self.scheduled) + k, "update") for k in range(count)]
        self.scheduled |= {item.id: item for item in new}
        self.carry_out(self.core.schedule(new, self.now))

    @rule(seconds=st.sampled_from([0.0, 0.3, 1.0, 5.0]))
    def time_passes(self, seconds: float) -> None:
        self.tick(seconds)

    @rule(seconds=st.sampled_from([0.3, 5.0]))
    def the_coordinator_stands_still(self, seconds: float) -> None:
        self.now += seconds
        self.core.excuse(seconds)

    @precondition(lambda self: self.core.absent(self.now) and not self.adding)
    @rule(data=st.data())
    def an_absent_worker_answers(self, data: st.DataObject) -> None:
        self.tell(Answered(self.one(data, self.core.absent(self.now))))

    @precondition(lambda self: self.defined)
    @rule(data=st.data())
    def a_stale_answer_arrives(self, data: st.DataObject) -> None:
        task = self.one(data, self.defined)
        before = self.core.workers[task].phase
        self.tell(Answered(task))
        assert self.core.workers[task].phase is before

    @precondition(lambda self: self.adding)
    @rule(works=st.booleans())
    def the_runtime_answers_an_add(self, works: bool) -> None:
        task = self.adding[-1]
        if works:
            self.add(task)
        else:
            self.adding.remove(task)
            self.tell(JoinFailed(task, "UnavailableError"))

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def a_call_comes_back(self, data: st.DataObject) -> None:
        self.answer(self.one(data, self.calls))

    @precondition(lambda self: self.calls)
    @rule(data=st.data(), transient=st.sampled_from([True, True, True, False]))
    def a_call_fails(self, data: st.DataObject, transient: bool) -> None:
        call = self.calls.pop(self.one(data, self.calls))
        self.tell(Failed(call.task, call.attempt, "Error", transient))

    @precondition(lambda self: self.abandoned)
    @rule(replies=st.booleans())
    def a_thread_that_was_left_behind_comes_back(self, replies: bool) -> None:
        call = self.abandoned.pop()
        if replies:
            self.tell(Replied(call.task, call.attempt, None, 99.0))
        else:
            self.tell(Failed(call.task, call.attempt, "Error"))

    @precondition(lambda self: self.probing)
    @rule(alive=st.booleans())
    def a_probe_answers(self, alive: bool) -> None:
        self.tell(Probed(self.probing.pop(), alive))

    @rule(data=st.data())
    def somebody_wants_a_worker_drained(self, data: st.DataObject) -> None:
        live = self.core.live
        self.tell(DrainAsked(self.one(data, self.core.workers)))
        assert self.core.live or not live, "nobody is left to go on"

    @rule(data=st.data())
    def a_look_finds_a_server_silent(self, data: st.DataObject) -> None:
        self.tell(Silent(self.one(data, self.core.workers)))

    @invariant()
    def who_drains_rests_only_if_others_work(self) -> None:
        for task in self.core.idle:
            if self.core.workers[task].draining:
                assert not self.core.replaceable(task)

    @invariant()
    def every_outcome_is_told_once_and_none_is_forgotten(self) -> None:
        assert len(set(self.delivered)) == len(self.delivered)
        assert self.core.open_items == len(self.scheduled) - len(self.delivered)

    @invariant()
    def the_cluster_definition_holds_the_live_workers(self) -> None:
        assert self.core.live == self.defined

    @invariant()
    def who_is_busy_has_a_call_and_who_is_idle_has_none(self) -> None:
        for task, worker in self.core.workers.items():
            working = worker.phase in (Phase.BUSY, Phase.SUSPECT, Phase.SLOW, Phase.FENCED)
            assert working == (task in self.calls) == (worker.attempt is not None)

    @invariant()
    def nobody_rests_while_items_wait(self) -> None:
        assert not (self.core.queued and self.core.idle)

    @invariant()
    def no_open_item_is_lost(self) -> None:
        held = {call.item.id for call in self.calls.values()}
        assert self.core.queued + len(held) >= self.core.open_items

    def teardown(self) -> None:
        """From here on the workers behave, except for those that hang already: they never reply.

        Then it ends.
        """
        if not hasattr(self, "core") or self.given_up:
            return
        hanging = {
            call.attempt
            for task, call in self.calls.items()
            if self.core.workers[task].phase is not Phase.BUSY
        }
        for _ in range(TURNS_TO_FINISH):
            if self.core.open_items == 0:
                break
            for task, call in list(self.calls.items()):
                if call.attempt not in hanging:
                    self.answer(task)
            while self.probing:
                self.tell(Probed(self.probing.pop(), alive=True))
            while self.adding:
                self.add(self.adding[0])
            for task in self.core.absent(self.now):
                self.tell(Answered(task))
            self.tick(1.0)
        assert sorted(self.delivered) == sorted(self.scheduled)


Cluster.TestCase.settings = settings(max_examples=100, stateful_step_count=50)
TestCluster = Cluster.TestCase
