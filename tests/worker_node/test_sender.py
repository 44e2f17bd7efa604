"""Nothing is lost and nothing is doubled of what workers keep back."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from core.engine.codecs import Codec
from core.engine.codecs.fp16 import Fp16
from core.engine.codecs.fp32 import Fp32
from core.engine.codecs.topk import TopK
from core.engine.runtime import trace
from core.ground.lazy import tf
from core.parameters import BLOCK, Layout, ParameterSpec, Vector
from ps_node.optimizers.sgd import MomentumSGD
from ps_node.shard import VectorState, Wire
from ps_node.shards import Header, ParameterShards
from worker_node import sender as sending
from worker_node.sender import Sender

HERE = "/job:localhost/replica:0/task:0/device:CPU:0"
SIZE = 2 * BLOCK
"""Two shards of a block each."""

WORKERS = 3


def unreliable(push: Callable[..., Any], reached: Any) -> Callable[..., Any]:
    """The push of a shard that what is sent reaches, or does not."""
    return lambda update: tf.cond(reached, lambda: push(update), lambda: tf.zeros([2], tf.int64))


class Cluster:
    """Shards, and workers that push to them.

    A worker's memory is one of its own, in this process.
    """

    def __init__(self, codec: Codec, size: int = SIZE, servers: int = 2, own: int = 0) -> None:
        layout = Layout([ParameterSpec("weights", (size,))])
        self.size = size
        self.own = own
        self.shards = ParameterShards(
            layout,
            VectorState(np.zeros(size, np.float32)),
            MomentumSGD(),
            [HERE] * servers,
            Wire(push=codec),
            remembering=bool(own) or not codec.stateless,
        )
        self.owner = self._name = int(np.random.SeedSequence().generate_state(1)[0])
        self._calls: dict[tuple[str, int], Callable[..., Any]] = {}

    def call(self, name: str, worker: int, *given: Any) -> Any:
        """A whole `push` of a worker or a `look` at its memory, traced when first it is needed."""
        if (name, worker) not in self._calls:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(sending, "NAME", f"worker_{worker}_of_{self._name}")
                made = self._push() if name == "push" else self._look()
            self._calls[name, worker] = made
        return self._calls[name, worker](*given)

    def _push(self) -> Callable[..., Any]:
        """As a mode does it; a shard whose place in `reached` is 0 never gets its part."""
        shards = self.shards
        sender = Sender(shards, self.own)

        def push(identifier: Any, gradient: Any, owner: Any, reached: Any) -> Any:
            begun = sender.begin(owner)
            _, statistics, versions = shards.pull()
            own = begun.settled.rows[: self.own] + 1.0 if self.own else None
            header = Header(identifier, tf.constant(1.0), versions, workers=tf.constant(4.0))
            with pytest.MonkeyPatch.context() as patch:
                for place, shard in enumerate(shards.shards):
                    reaches = tf.cast(reached[place], tf.bool)
                    patch.setattr(shard, "push", unreliable(shard.push, reaches))
                outcome = sender.push(begun, gradient, statistics, header, own)
            return tf.identity(outcome.fresh)

        return trace(
            push,
            tf.TensorSpec([], tf.int64),
            tf.TensorSpec([self.size]),
            tf.TensorSpec([2], tf.int64),
            tf.TensorSpec([len(shards.shards)], tf.int32),
        )

    def _look(self) -> Callable[..., Any]:
        sender = Sender(self.shards, self.own)
        return trace(lambda owner: sender.begin(owner).settled.rows, tf.TensorSpec([2], tf.int64))

    def push(
        self,
        worker: int,
        identifier: int,
        gradient: Vector,
        reached: tuple[bool, ...] = (True, True),
        generation: int | None = None,
    ) -> int:
        """Shards that applied it.

        `generation` is that of the shards, or of an item that was made before.
        """
        taken = np.array(reached[: len(self.shards.shards)], np.int32)  # arguments are words
        owner = self._owner(generation)
        return int(self.call("push", worker, np.int64(identifier), gradient, owner, taken))

    def _owner(self, generation: int | None = None) -> NDArray[np.int64]:
        if generation is None:
            generation = self.shards.generation
        return np.array([self.owner, generation], np.int64)

    def rows(self, worker: int) -> Vector:
        """What the worker remembers: float32 (rows, size)."""
        found: Vector = self.call("look", worker, self._owner()).numpy()
        return found

    def applied(self) -> Vector:
        """Gradient that the shards have applied."""
        return -self.shards.read()

    def all_there_is(self) -> Vector:
        """Applied, and kept back by the workers."""
        total = self.applied().astype(np.float64)
        for worker in range(WORKERS):
            total += self.rows(worker)[-1]
        return total.astype(np.float32)


def test_a_warm_up_sends_more_at_first_and_nothing_is_lost_or_doubled() -> None:
    codec = TopK(1 / 8, warmup_epochs=2).within(updates_an_epoch=2)
    cluster = Cluster(codec, size=16, servers=1)
    gradient = np.arange(16, 0, -1).astype(np.float32)
    sent: list[int] = []
    for identifier, pushed in [
        (0, gradient),
        (0, gradient),
        *((number, 0 * gradient) for number in range(1, 8)),
    ]:
        before = int(np.count_nonzero(cluster.applied()))
        assert cluster.push(0, identifier, pushed) == (0 if sent and identifier == 0 else 1)
        sent.append(int(np.count_nonzero(cluster.applied())) - before)
        assert_array_equal(cluster.all_there_is(), gradient)
    assert sent[:7] == [4, 0, 4, 3, 3, 2, 0], (
        "a quarter, its share in between, an eighth; a repeated one nothing"
    )


def test_an_update_that_is_resumed_sends_what_its_number_says() -> None:
    codec = TopK(1 / 8, warmup_epochs=2).within(updates_an_epoch=2)
    for identifier, count in ((0, 4), (2, 3), (4, 2), (1000, 2)):
        cluster = Cluster(codec, size=16, servers=1)
        cluster.push(0, identifier, np.arange(1, 17).astype(np.float32))
        assert np.count_nonzero(cluster.applied()) == count


def test_what_a_worker_adds_is_cut_to_its_share_of_the_norm_over_all_shards() -> None:
    codec = TopK(0.5, clip_norm=6.0)
    cluster = Cluster(codec)
    gradient = np.zeros(SIZE, np.float32)
    gradient[[0, -1]] = 30.0, 40.0
    cluster.push(0, 0, gradient)
    assert_allclose(cluster.all_there_is()[[0, -1]], [3.0 * 0.6, 3.0 * 0.8], rtol=1e-6)
    small = Cluster(codec)
    small.push(0, 0, np.float32(0.01) * gradient)
    assert_array_equal(small.all_there_is(), np.float32(0.01) * gradient)


def test_a_call_of_an_earlier_generation_changes_neither_shards_nor_memory() -> None:
    """A worker was stopped in its call, the shards began again."""
    cluster = Cluster(TopK(1 / 4))
    gradient = np.arange(1, SIZE + 1, dtype=np.float32)
    cluster.push(0, 0, gradient)
    cluster.shards.reset(np.zeros(SIZE, np.float32))
    assert cluster.push(0, 1, gradient) == 2
    before = cluster.applied()
    kept = cluster.rows(0)
    assert kept.any()
    assert cluster.push(0, 2, 100.0 * gradient, generation=0) == 0, (
        "dropped, and its call fails not"
    )
    assert_array_equal(cluster.applied(), before)
    assert_array_equal(cluster.rows(0), kept)
    assert cluster.push(0, 2, gradient) == 2, "an id that was dropped is not marked"


def test_rows_of_the_callers_own_advance_with_the_applied_push_alone() -> None:
    """An inner optimizer's slots, with a codec that keeps nothing."""
    cluster = Cluster(Fp32(), own=2)
    gradient = np.ones(SIZE, np.float32)
    for identifier, expected in [(0, 1.0), (0, 1.0), (1, 2.0), (1, 2.0)]:
        cluster.push(0, identifier, gradient)
        assert_array_equal(cluster.rows(0), np.full((2, SIZE), expected))
    assert cluster.push(0, 2, gradient, reached=(False, True)) == 1
    assert_array_equal(cluster.rows(0)[:, [0, -1]], [[2.0, 3.0]] * 2)


@pytest.mark.parametrize("codec", [Fp32(), Fp16()], ids=str)
def test_without_anything_to_remember_nothing_is_asked_of_the_shards(codec: Codec) -> None:
    cluster = Cluster(codec)
    assert not cluster.shards.remembering
    assert [cluster.push(0, 0, np.ones(SIZE, np.float32)) for _ in range(2)] == [2, 0]
    assert_array_equal(cluster.applied(), np.ones(SIZE))


@cache
def one_cluster() -> Cluster:
    """Traced once for all examples."""
    return Cluster(TopK(0.2))


@settings(max_examples=40)
@given(
    deliveries=st.lists(
        st.tuples(st.integers(0, WORKERS - 1), st.integers(0, 11), st.booleans(), st.booleans()),
        max_size=40,
    ),
    seed=st.integers(0, 2**32),
)
def test_whatever_is_delivered_to_whom_and_however_far_it_gets(
    deliveries: list[tuple[int, int, bool, bool]], seed: int
) -> None:
    """Updates come in any order, again, on other workers, and reach none, one or both shards.

    In the end each is delivered once more, as the dispatcher does until somebody answers. Gradients
    are small integers, whose float32 sums are exact.
    """
    cluster = one_cluster()
    cluster.shards.reset(np.zeros(SIZE, np.float32))
    for shard in cluster.shards.shards:
        shard.ledger.assign(tf.fill(shard.ledger.shape, tf.constant(-1, tf.int64)))
    cluster.owner += 1  # new memories
    generator = np.random.default_rng(seed)
    gradients = generator.integers(-1000, 1000, (12, SIZE)).astype(np.float32)
    for worker, identifier, *reached in deliveries:
        cluster.push(worker, identifier, gradients[identifier], tuple(reached))
    for identifier, gradient in enumerate(gradients):
        cluster.push(int(generator.integers(WORKERS)), identifier, gradient)
    assert_array_equal(cluster.all_there_is(), gradients.sum(0))
