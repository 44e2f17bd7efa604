"""Synchronous steps at the shards.

Their devices are in this process, the graphs are the product's.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from core.consistency import largest_subtree
from core.engine.codecs.fp16 import Fp16
from core.engine.codecs.fp32 import Fp32
from core.engine.codecs.int8 import Int8
from core.engine.codecs.topk import TopK
from core.engine.runtime import trace
from core.ground.lazy import tf
from core.parameters import Layout, ParameterSpec, Vector
from ps_node.arithmetic import Arithmetic, LibraryArithmetic, TensorFlowArithmetic
from ps_node.nodes import StepRecipe
from ps_node.optimizers import Optimizer
from ps_node.optimizers.adam import Adam
from ps_node.optimizers.sgd import MomentumSGD
from ps_node.shard import VectorState, Wire
from ps_node.step_shards import StepShards
from ps_node.steps import STEP_WORDS

TRAINED = 4500
STATISTICS = 3100
SLOTS = 5
HERE = "/device:CPU:0"
LAYOUT = Layout(
    [ParameterSpec("weights", (TRAINED,)), ParameterSpec("mean", (STATISTICS,), trained=False)]
)
ALL = (1.0,) * SLOTS
Rows = tuple[NDArray[np.float32], NDArray[np.float32]]


def start() -> Vector:
    return np.random.default_rng(1).normal(size=LAYOUT.size).astype(np.float32)


def slots(step: int) -> Rows:
    """Gradients (SLOTS, TRAINED) of very different sizes, and statistics (SLOTS, STATISTICS)."""
    random = np.random.default_rng(100 + step)
    scales = 10.0 ** random.uniform(-6, 0, size=TRAINED)
    gradients = random.normal(size=(SLOTS, TRAINED)) * scales
    gradients[:, ::7] = -0.0
    statistics = random.normal(size=(SLOTS, STATISTICS)) / SLOTS
    return gradients.astype(np.float32), statistics.astype(np.float32)


@dataclass
class Placed:
    """Shards and what workers do with them, traced."""

    shards: StepShards
    advance_: Callable[..., Any]
    contribute_: Callable[..., Any]

    def contribute(
        self, step: int, first: int, size: int, rows: Rows | None = None, generation: int = 0
    ) -> int:
        """How many shards kept the sum of `size` slots from `first` on."""
        gradients, statistics = rows or slots(step)
        node = self.node(gradients[first : first + size], statistics[first : first + size])
        where = np.array([first], np.int32), np.zeros((size, 2), np.float32)
        return self.kept(self.contribute_(node[None], np.array([step, generation]), *where))

    def contribute_many(self, step: int, cut: Sequence[tuple[int, int]]) -> int:
        """How many shards kept any of the sums of neighbouring subtrees, (first, slots)."""
        gradients, statistics = slots(step)
        nodes = tf.stack(
            [
                self.node(gradients[first : first + size], statistics[first : first + size])
                for first, size in cut
            ]
        )
        firsts = np.array([first for first, _ in cut], np.int32)
        figures = np.zeros((sum(size for _, size in cut), 2), np.float32)
        return self.kept(self.contribute_(nodes, np.array([step, 0]), firsts, figures))

    @staticmethod
    def kept(answers: Any) -> int:
        return int(np.count_nonzero(answers))

    def node(self, gradients: NDArray[np.float32], statistics: NDArray[np.float32]) -> Any:
        """Add up some slots as a worker does."""
        leaves = map(tf.constant, np.concatenate([gradients, statistics], 1))
        return self.shards.nodes.total([self.shards.nodes.rounded(leaf) for leaf in leaves])

    def advance(
        self, step: int, counted: Sequence[float] = ALL, share: float = 1.0, rate: float = 0.1
    ) -> float:
        """Finish the step; the norm of its gradient."""
        told = self.advance_(
            np.int64(step), np.array(counted, np.float32), np.float32(share), np.float32(rate)
        )
        return float(told[2])

    def whole_step(
        self, step: int, wanted: Sequence[int] = (SLOTS,), last_first: bool = False
    ) -> None:
        """All slots in aligned parts of at most `wanted` each, then the end of the step."""
        parts: list[tuple[int, int]] = []
        first = 0
        while first < SLOTS:
            parts.append((first, largest_subtree(first, SLOTS, wanted[len(parts) % len(wanted)])))
            first += parts[-1][1]
        for first, size in reversed(parts) if last_first else parts:
            assert self.contribute(step, first, size) == len(self.shards.shards)
        self.advance(step)


def placed(
    servers: int = 2,
    optimizer: Optimizer | None = None,
    clip_norm: float | None = None,
    wire: Wire | None = None,
    state: VectorState | None = None,
    arithmetic: Arithmetic | None = None,
    l2: float = 0.0,
) -> Placed:
    state = state or VectorState(start())
    arithmetic = arithmetic or LibraryArithmetic()
    optimizer = arithmetic.optimizer(optimizer or MomentumSGD())
    recipe = StepRecipe(SLOTS, clip_norm, l2, arithmetic)
    shards = StepShards(LAYOUT, state, optimizer, [HERE] * servers, wire, recipe=recipe)

    def advance(step: Any, counted: Any, share: Any, rate: Any) -> Any:
        now = shards.advance(step, counted, share, rate)
        return now.trained, now.statistics, now.norm

    number = tf.TensorSpec([])
    step = tf.TensorSpec([], tf.int64)

    def contribute(nodes: Any, step_and_generation: Any, firsts: Any, figures: Any) -> Any:
        step, generation = tf.unstack(step_and_generation)
        return shards.contribute(nodes, step, firsts, generation, figures)

    vectors = tf.TensorSpec([None, LAYOUT.size])
    firsts = tf.TensorSpec([None], tf.int32)
    return Placed(
        shards,
        trace(advance, step, tf.TensorSpec([SLOTS]), number, number),
        trace(contribute, vectors, tf.TensorSpec([2], tf.int64), firsts, tf.TensorSpec([None, 2])),
    )


@pytest.mark.parametrize("arithmetic", [LibraryArithmetic(), TensorFlowArithmetic()])
@pytest.mark.parametrize("codec", [Fp32(), Fp16(), Int8()], ids=["fp32", "fp16", "int8"])
def test_neither_servers_nor_how_a_step_was_cut_change_a_bit(
    codec: Fp32 | Fp16 | Int8, arithmetic: Arithmetic
) -> None:
    results = []
    for servers, wanted, last_first in [
        (1, (5,), False),
        (1, (1,), True),
        (2, (2, 1), False),
        (3, (4,), True),
        (4, (1, 2), True),
    ]:
        optimizer = Adam(weight_decay=0.01)
        wire = Wire(codec, codec)
        store = placed(servers, optimizer, 0.5, wire, arithmetic=arithmetic)
        for step in range(3):
            store.whole_step(step, wanted, last_first)
        results.append(store.shards.read())
        assert store.shards.totals().applied == 3
    assert not np.array_equal(results[0], start())
    for other in results[1:]:
        assert_array_equal(other.view(np.int32), results[0].view(np.int32))


def test_a_part_that_comes_twice_counts_once() -> None:
    once = placed()
    twice = placed()
    once.whole_step(0)
    assert twice.contribute(0, 0, 4) == 2
    assert twice.contribute(0, 0, 4, rows=slots(9)) == 0
    assert twice.contribute(0, 4, 1) == 2
    assert twice.contribute(0, 4, 1) == 0
    twice.advance(0)
    assert_array_equal(twice.shards.read(), once.shards.read())
    assert twice.shards.totals().duplicates_dropped == 2


def test_what_belongs_to_another_step_is_dropped() -> None:
    store = placed()
    assert store.contribute(1, 0, 4) == 0, "of a step that has not begun"
    store.whole_step(0)
    before = store.shards.read()
    assert store.contribute(0, 0, 4) == 0, "of a step that is over"
    store.advance(0)
    store.advance(7)
    assert_array_equal(store.shards.read(), before)
    assert store.shards.totals().applied == 1
    assert store.contribute(1, 0, 4) == 2


def test_what_belongs_to_the_generation_before_is_dropped() -> None:
    store = placed(1)
    store.shards.fence()
    assert store.contribute(0, 0, 4) == 0
    store.advance(0)
    assert_array_equal(store.shards.read(), start())
    assert store.contribute(0, 0, 4, generation=1) == 1


@pytest.mark.parametrize("clip_norm", [0.5, None])
def test_a_worker_that_died_half_way_through_the_end_of_a_step_is_made_good_by_the_next(
    clip_norm: float | None,
) -> None:
    """It died when the first shard had closed the step, or had gone on to the next one."""
    store = placed(clip_norm=clip_norm)
    whole = placed(clip_norm=clip_norm)
    whole.whole_step(0)
    store.contribute(0, 0, SLOTS)
    first = store.shards.shards[0]
    halves = np.zeros(STEP_WORDS, np.float32)
    called(first.close, [*halves, 1.0, *ALL])
    if clip_norm is None:
        called(first.advance, [*halves, 1.0, 1.0, 0.1])
    else:
        assert store.contribute(0, 0, 1) == 0, "the first has closed, the second has it already"
    store.advance(0)
    assert_array_equal(store.shards.read(), whole.shards.read())
    assert store.shards.totals().applied == 1


def called(function: Callable[..., Any], words: list[float]) -> None:
    """Call a shard's function with one vector, as what comes over the wire."""
    trace(function, tf.TensorSpec([len(words)]))(np.array(words, np.float32))


def test_a_part_that_came_before_or_comes_when_its_step_is_closed_is_dropped() -> None:
    store = placed(1)
    assert [store.contribute(0, 0, 4) for _ in range(2)] == [1, 0]
    counted = (1.0, 1.0, 1.0, 1.0, 0.0)
    called(store.shards.shards[0].close, [*np.zeros(STEP_WORDS, np.float32), 1.0, *counted])
    assert store.contribute(0, 4, 1) == 0


def test_a_step_that_lacks_a_slot_ends_for_no_worker_that_asks() -> None:
    store = placed(2)
    store.contribute(0, 0, 4)
    asked = trace(
        lambda step: store.shards.wait_until_whole(step, False, 0, 0.001, 0.002),
        tf.TensorSpec([], tf.int64),
    )
    assert [bool(asked(np.int64(step))) for step in (-1, 0, 1)] == [True, False, False]
    store.contribute(0, 4, 1)
    assert bool(asked(np.int64(0)))


def test_of_neighbouring_sums_those_count_whose_slots_are_missing() -> None:
    store, whole = placed(2), placed(2)
    whole.whole_step(0)
    assert store.contribute_many(0, [(1, 1), (2, 2)]) == 2
    assert store.contribute_many(0, [(2, 2), (4, 1)]) == 2, "the second is new"
    assert store.contribute_many(0, [(1, 1), (2, 2), (4, 1)]) == 0
    assert store.contribute_many(0, [(0, 2), (2, 2)]) == 2, "slot 0 was missing"
    store.advance(0)
    assert_array_equal(store.shards.read(), whole.shards.read())


def test_slots_that_are_here_already_count_once_however_they_are_cut() -> None:
    """A worker that was taken for lost may go on while others compute its slots in other parts."""
    store, whole = placed(2), placed(2)
    whole.whole_step(0)
    assert store.contribute(0, 2, 1) == 2
    assert store.contribute(0, 0, 4) == 2, "it takes the place of the one slot"
    assert store.contribute(0, 0, 2) == 0
    assert store.contribute(0, 4, 1) == 2
    store.advance(0)
    assert_array_equal(store.shards.read(), whole.shards.read())


@pytest.mark.parametrize("arithmetic", [LibraryArithmetic(), TensorFlowArithmetic()])
def test_one_step_by_hand(arithmetic: Arithmetic) -> None:
    store = placed(3, clip_norm=0.5, arithmetic=arithmetic)
    gradients, statistics = slots(0)
    store.contribute(0, 0, 4)
    store.contribute(0, 4, 1)
    norm = store.advance(0, rate=0.1)
    total = gradients.astype(np.float64).sum(0)
    assert norm == pytest.approx(np.linalg.norm(total), rel=1e-6)
    assert norm > 0.5, "or nothing is cut here"
    trained, kept = np.split(start(), [TRAINED])
    expected = trained - 0.1 * total * 0.5 / norm
    assert_allclose(store.shards.read()[:TRAINED], expected, rtol=1e-5, atol=1e-6)
    followed = kept + 0.1 * (statistics.sum(0) - kept)
    assert_allclose(store.shards.read()[TRAINED:], followed, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("arithmetic", [LibraryArithmetic(), TensorFlowArithmetic()])
def test_the_l2_term_joins_the_mean_of_what_counts(arithmetic: Arithmetic) -> None:
    free, pulled = (placed(l2=weight, arithmetic=arithmetic) for weight in (0.0, 0.25))
    for store in (free, pulled):
        store.contribute(0, 0, 4)
        store.advance(0, (1.0, 1.0, 1.0, 1.0, 0.0), share=SLOTS / 4, rate=1.0)
    moved = (free.shards.read() - pulled.shards.read())[:TRAINED]
    assert_allclose(moved, 0.25 * start()[:TRAINED], rtol=1e-4, atol=1e-5)


def test_with_a_quorum_only_what_counts_is_in_the_mean() -> None:
    some = placed()
    others = placed()
    counted = (1.0, 1.0, 0.0, 0.0, 1.0)
    for store, extra in ((some, True), (others, False)):
        store.contribute(0, 0, 2)
        store.contribute(0, 4, 1)
        if extra:
            store.contribute(0, 2, 1)
        store.advance(0, counted, share=5 / 3)
    assert_array_equal(some.shards.read(), others.shards.read())
    gradients, _ = slots(0)
    expected = start()[:TRAINED] - 0.1 * gradients[[0, 1, 4]].astype(np.float64).sum(0) * 5 / 3
    assert_allclose(some.shards.read()[:TRAINED], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("value", "clip_norm"), [(np.nan, 1.0), (np.inf, 1.0), (np.nan, None)])
def test_what_is_not_finite_leaves_the_parameters_alone_and_is_told(
    value: float, clip_norm: float | None
) -> None:
    store = placed(clip_norm=clip_norm)
    gradients, statistics = slots(0)
    gradients[2, 3000] = value
    statistics[1, 5] = value
    store.contribute(0, 0, SLOTS, rows=(gradients, statistics))
    assert not np.isfinite(store.advance(0))
    assert_array_equal(store.shards.read(), start())
    store.whole_step(1)
    assert np.isfinite(store.shards.read()).all()
    assert store.shards.totals().applied == 2


@pytest.mark.parametrize("servers", [1, 3])
def test_a_state_goes_on_with_the_same_bits_on_another_number_of_servers(servers: int) -> None:
    optimizer = Adam(weight_decay=0.01)
    through = placed(2, optimizer)
    for step in range(4):
        through.whole_step(step)
        if step == 1:
            state = through.shards.state()
    assert (state.next_id, state.optimizer_updates) == (2, 2)
    onward = placed(servers, optimizer, state=state)
    for step in (2, 3):
        onward.whole_step(step)
    assert_array_equal(onward.shards.read(), through.shards.read())
    assert onward.shards.totals().applied == 2
    assert onward.shards.state().next_id == 4


def test_a_codec_with_a_memory_is_refused() -> None:
    with pytest.raises(ValueError, match="without memory, not topk"):
        placed(wire=Wire(push=TopK(0.1, 0.0)))
