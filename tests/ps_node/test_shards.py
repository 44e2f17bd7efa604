"""Pull, push and the ledger of the shards.

Their devices are in this process; the graphs are the product's.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from core.engine.codecs import Codec
from core.engine.codecs.fp16 import Fp16
from core.engine.codecs.fp32 import Fp32
from core.engine.codecs.topk import TopK
from core.engine.runtime import trace
from core.ground.lazy import tf
from core.parameters import Layout, ParameterSpec, Vector
from ps_node import shard, shards
from ps_node.optimizers import Optimizer
from ps_node.optimizers.adam import Adam
from ps_node.optimizers.sgd import MomentumSGD
from ps_node.shard import LEDGER_SLOTS, VectorState, Wire, ledger_of
from ps_node.shards import Header, ParameterShards

TRAINED = 2500
STATISTICS = 1100
HERE = "/device:CPU:0"


@dataclass
class Store:
    """Shards and the two things a worker does with them, traced."""

    shards: ParameterShards
    pull: Callable[[], Any]
    push: Callable[..., Any]

    def send(
        self,
        identifier: int,
        gradient: float = -1.0,
        statistics: float = 0.0,
        version: int = 0,
        generation: int | None = None,
    ) -> tuple[int, int]:
        """(shards that took it, staleness) of a constant gradient with rate 1."""
        outcome = self.push(
            tf.fill([TRAINED], gradient),
            tf.fill([STATISTICS], statistics),
            tf.constant(identifier, tf.int64),
            tf.constant(1.0),
            tf.fill([len(self.shards.shards)], tf.constant(version, tf.int64)),
            tf.constant(self.shards.generation if generation is None else generation, tf.int64),
        )
        return int(outcome[0]), int(outcome[1])

    def parts(self) -> tuple[Vector, Vector]:
        """Trained parameters and statistics."""
        vector = self.shards.read()
        return vector[:TRAINED], vector[TRAINED:]


LAYOUT = Layout(
    [ParameterSpec("weights", (TRAINED,)), ParameterSpec("mean", (STATISTICS,), trained=False)]
)
WEIGHTS = Layout([ParameterSpec("weights", (TRAINED,))])
NOTHING = VectorState(np.zeros(LAYOUT.size, np.float32))


def drawn(size: int = LAYOUT.size) -> Vector:
    return np.random.default_rng(1).normal(size=size).astype(np.float32)


def store(
    servers: int = 2,
    state: VectorState = NOTHING,
    momentum: float = 0.9,
    staleness_power: float = 0.0,
    optimizer: Optimizer | None = None,
) -> Store:
    made = ParameterShards(
        LAYOUT,
        state,
        optimizer or MomentumSGD(),
        [HERE] * servers,
        staleness_power=staleness_power,
    )

    def push(
        gradient: Any, statistics: Any, identifier: Any, rate: Any, versions: Any, generation: Any
    ) -> Any:
        header = Header(identifier, rate, versions, generation, 1.0 - momentum)
        outcome = made.push(gradient, statistics, header)
        return tf.stack([outcome.fresh, outcome.staleness])

    number = tf.TensorSpec([], tf.int64)
    vectors = (tf.TensorSpec([TRAINED]), tf.TensorSpec([STATISTICS]))
    rate = tf.TensorSpec([])
    versions = tf.TensorSpec([servers], tf.int64)
    return Store(made, trace(made.pull), trace(push, *vectors, number, rate, versions, number))


@pytest.mark.parametrize("servers", [1, 2, 3])
def test_what_is_placed_is_what_is_pulled_and_read_however_many_servers(servers: int) -> None:
    vector = drawn()
    placed = store(servers, VectorState(vector))
    trained, statistics, versions = placed.pull()
    assert_array_equal(np.concatenate([trained, statistics]), vector)
    assert versions.numpy().tolist() == [0] * servers
    assert_array_equal(placed.shards.read(), vector)


@pytest.mark.parametrize("codec", [Fp32(), Fp16(), TopK(0.5)], ids=str)
def test_an_exact_pull_of_a_vector_without_statistics_has_every_bit_whatever_the_codec(
    codec: Codec,
) -> None:
    vector = drawn(TRAINED)
    pulled_with = codec if codec.stateless else Fp32()
    wire = Wire(pulled_with, codec)
    made = ParameterShards(WEIGHTS, VectorState(vector), MomentumSGD(), [HERE] * 2, wire)
    trained, statistics, _ = trace(lambda: made.pull(exact=True))()
    assert_array_equal(trained, vector)
    assert statistics.shape == (0,)
    assert_array_equal(made.read(), vector)
    words, _ = pulled_with.encode(tf.constant(vector), tf.zeros([0, TRAINED]))
    assert_array_equal(trace(made.pull)()[0], pulled_with.decode(words, TRAINED))


def test_a_second_push_of_an_update_changes_nothing() -> None:
    placed = store()
    assert placed.send(7) == (2, 0)
    assert placed.send(7, gradient=99.0, statistics=99.0) == (0, 1)
    trained, statistics = placed.parts()
    assert (trained == 1.0).all()
    assert (statistics == 0.0).all()
    totals = placed.shards.totals()
    assert (totals.applied, totals.duplicates_dropped) == (1, 1)


def test_a_new_update_may_come_late_but_not_later_than_the_ledger_remembers() -> None:
    placed = store()
    assert placed.send(LEDGER_SLOTS + 5)[0] == 2
    assert placed.send(6)[0] == 2, "65,535 behind the newest, and not seen before"
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match="65536 updates late: whether it was applied is not known",
    ):
        # Its place in the ledger belongs to the newer one: no silence about a lost update.
        placed.send(5)
    assert placed.shards.totals().applied == 2


def test_a_worker_that_died_between_two_shards_is_made_good_by_the_next_attempt() -> None:
    placed = store()
    first = placed.shards.shards[0]
    gradient = np.full(first.shard.trained[1], -1.0, np.float32)
    statistics = np.zeros(first.shard.statistics[1], np.float32)
    header = np.array([0, 0, 0], "<i8").view("<f4")
    update = np.concatenate([gradient, statistics, header, np.array([1.0, 0.1], np.float32)])
    assert trace(first.push, tf.TensorSpec([update.size]))(update)[0] == 1
    assert not placed.shards.has_applied_all_below(1)
    assert placed.send(0)[0] == 1, "only the second shard still had to take it"
    assert placed.shards.has_applied_all_below(1)
    assert (placed.parts()[0] == 1.0).all()


def test_a_push_of_the_generation_before_changes_nothing() -> None:
    placed = store()
    placed.shards.fence()
    assert placed.send(0, generation=0) == (0, 0)
    assert (placed.parts()[0] == 0.0).all()
    assert placed.send(0, generation=1) == (2, 0)


class Senders:
    """A shard, and the calls of workers that remember something, traced."""

    def __init__(self) -> None:
        self.placed = ParameterShards(
            WEIGHTS, VectorState(drawn(TRAINED)), MomentumSGD(), [HERE], remembering=True
        )
        number = tf.TensorSpec([], tf.int64)
        self._take_turn = trace(self.placed.shards[0].take_turn, *[number] * 3)
        self._push = trace(self._pushed, *[number] * 4)

    def _pushed(self, sender: Any, turn: Any, identifier: Any, generation: Any) -> Any:
        header = Header(identifier, 1.0, tf.zeros([1], tf.int64), generation)
        encoded, _ = self.placed.encode(tf.ones([TRAINED]), header)
        turns = tf.stack([sender, turn])
        return self.placed.push_encoded(encoded, tf.zeros([0]), header, turns).fresh

    def take_turn(self, sender: int, turn: int, generation: int = 0) -> int:
        return int(self._take_turn(*map(np.int64, (sender, turn, generation))))

    def push(self, sender: int, turn: int, identifier: int, generation: int = 0) -> int:
        return int(self._push(*map(np.int64, (sender, turn, identifier, generation))))


def test_a_late_turn_of_the_generation_before_refuses_no_push() -> None:
    senders = Senders()
    senders.placed.fence()
    senders.take_turn(7, turn=1, generation=1)
    senders.take_turn(7, turn=99, generation=0)
    assert senders.push(7, turn=1, identifier=1, generation=1) == 1


def test_a_push_whose_sender_has_begun_another_is_refused_and_not_marked() -> None:
    """A worker was stopped with its push on the way.

    The update runs again, here or elsewhere, and must be applied.
    """
    senders = Senders()
    assert [senders.take_turn(7, turn) for turn in (5, 6)] == [0, 0]
    assert senders.push(7, turn=5, identifier=3) == shards.REFUSED
    senders.take_turn(8, turn=1)
    assert senders.push(8, turn=1, identifier=3) == 1
    assert senders.push(7, turn=6, identifier=3) == 0, "its turn, and applied before"
    assert senders.take_turn(7, turn=7) == 0, "none of its pushes was applied"
    assert senders.take_turn(7, turn=6) == 0, "an earlier call that comes late"
    assert senders.push(7, turn=7, identifier=3) == 0, "the present turn is not set back"


def test_the_statistics_follow_new_values_by_their_momentum_and_no_optimizer_touches_them() -> None:
    placed = store(momentum=0.75)
    expected = 0.0
    for identifier, value in enumerate([4.0, 8.0, -2.0]):
        placed.send(identifier, statistics=value)
        expected = 0.75 * expected + 0.25 * value
    assert_allclose(placed.parts()[1], expected, rtol=1e-6)


def test_any_identifier_survives_its_way_in_a_float_tensor() -> None:
    placed = store()
    # The lower halves are a signalling NaN, a denormal, minus zero, infinity: arithmetic would
    # change them.
    for identifier in [1, 0x7F800001, 0x80000000, 0x1_7F800000, 0x7FC0_0000_7FA0_0000]:
        assert placed.send(identifier)[0] == 2
        assert placed.send(identifier)[0] == 0
        slot = identifier % LEDGER_SLOTS
        assert [int(part.ledger[slot]) for part in placed.shards.shards] == [identifier] * 2


def test_a_reset_starts_over_from_a_vector_while_ids_go_on() -> None:
    placed = store()
    placed.send(0, statistics=5.0)
    placed.send(1)
    vector = np.arange(TRAINED + STATISTICS, dtype=np.float32)
    placed.shards.reset(vector)
    assert_array_equal(placed.shards.read(), vector)
    assert placed.send(1)[0] == 0
    assert placed.send(2)[0] == 2
    assert_array_equal(placed.parts()[0], vector[:TRAINED] + 1.0)


def test_the_first_update_after_a_reset_is_that_of_fresh_shards() -> None:
    """Adam's step depends on the number of updates since its moments were zero."""
    used = store(optimizer=Adam())
    fresh = store(optimizer=Adam())
    for identifier in range(3):
        used.send(identifier)
    used.shards.reset(NOTHING.vector)
    used.send(3)
    fresh.send(0)
    assert_array_equal(used.shards.read(), fresh.shards.read())


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(order=st.lists(st.integers(0, 40), max_size=60))
def test_the_ledger_applies_each_new_update_once_in_any_order_within_its_window(
    order: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (shard, shards):
        monkeypatch.setattr(module, "LEDGER_SLOTS", 16)
    placed = store_of_sixteen()
    placed.shards.reset(np.zeros(TRAINED + STATISTICS, np.float32))
    for part in placed.shards.shards:
        part.ledger.assign(tf.fill([16], tf.constant(-1, tf.int64)))
    newest: dict[int, int] = {}
    applied = 0
    for identifier in order:
        last = newest.get(identifier % 16, -1)
        if identifier < last:
            with pytest.raises(tf.errors.InvalidArgumentError, match="updates late"):
                placed.send(identifier)
            continue
        fresh = identifier > last
        assert placed.send(identifier)[0] == 2 * fresh
        if fresh:
            newest[identifier % 16] = identifier
            applied += 1
    assert (placed.parts()[0] == applied).all()


@cache
def store_of_sixteen() -> Store:
    """Traced once for all examples, while the ledger has sixteen slots."""
    return store()


@pytest.mark.parametrize(
    ("power", "shares"),
    [(0.0, [1, 1, 1, 1]), (1.0, [1, 1, 1 / 2, 1 / 3]), (0.5, [1, 1, 2**-0.5, 3**-0.5])],
)
def test_the_rate_of_a_stale_update_is_divided_by_its_staleness_to_a_power(
    power: float, shares: list[float]
) -> None:
    placed = store(staleness_power=power)
    before = placed.parts()[0]
    for staleness, share in enumerate(shares):
        assert placed.send(staleness) == (2, staleness)
        after = placed.parts()[0]
        assert_allclose(after - before, share, rtol=1e-5)
        before = after
    version = int(placed.pull()[2][0])
    assert (version, placed.send(4, version=version)) == (4, (2, 0)), "it counts since the pull"


@pytest.mark.parametrize(
    "next_id", [0, 1, 7, LEDGER_SLOTS - 1, LEDGER_SLOTS, LEDGER_SLOTS + 3, 5 * LEDGER_SLOTS - 2]
)
def test_a_ledger_of_the_past_is_what_applying_all_of_it_would_have_left(next_id: int) -> None:
    ledger = np.full(LEDGER_SLOTS, -1, np.int64)
    applied = np.arange(max(0, next_id - 2 * LEDGER_SLOTS), next_id)
    ledger[applied % LEDGER_SLOTS] = applied
    assert_array_equal(ledger_of(next_id), ledger)


def test_a_state_goes_on_elsewhere_and_knows_what_was_applied() -> None:
    first = store(2)
    for identifier in (0, 2, 1):
        first.send(identifier)
    state = first.shards.state()
    assert (state.next_id, state.optimizer_updates) == (3, 3)
    onward = store(3, state=state)
    assert [onward.send(identifier)[0] for identifier in (0, 2, 3)] == [0, 0, 3]
    assert (onward.parts()[0] == 4.0).all()
    assert onward.shards.totals().applied == 1
    assert onward.shards.state().next_id == 4


def test_shards_that_are_not_at_one_cut_give_no_state() -> None:
    placed = store(2)
    placed.send(0)
    placed.shards.shards[1].counts.assign([0, 0, 0, 0])
    with pytest.raises(RuntimeError, match=r"not at one cut: they have applied \[1, 0\]"):
        placed.shards.state()


def test_every_call_to_the_servers_tells_when_one_of_them_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reached: list[str] = []

    @contextmanager
    def reaching() -> Iterator[None]:
        reached.append("a server")
        yield

    monkeypatch.setattr(ParameterShards, "reaching", staticmethod(reaching))
    store = ParameterShards(LAYOUT, NOTHING, MomentumSGD(), [HERE])
    assert len(reached) == 1
    calls: dict[Callable[[], object], int] = {
        store.fence: 1,
        partial(store.reset, NOTHING.vector): 2,
        store.read: 1,
        store.state: 2,
        partial(store.has_applied_all_below, 0): 1,
        store.totals: 1,
    }
    for call, times in calls.items():
        reached.clear()
        call()
        assert len(reached) == times, call
