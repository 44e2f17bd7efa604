"""The whole vector under synchronous steps, as the workers call it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from core.ground.lazy import tf
from core.parameters import Layout
from ps_node.nodes import Nodes, StepRecipe, clipped
from ps_node.optimizers import Optimizer
from ps_node.shard import PlacedVector, VectorState, Wire
from ps_node.steps import NO_STEP, StepShard, step_words

LONGEST_PAUSE_SECONDS = 0.05
PAUSE_SHARE = 0.25
"""A worker that waits for the others' parts asks again after this share of the time that it has
waited: a question takes a millisecond of the processors (measured)."""


def paused(seconds: Any) -> Any:
    """A tensor that is there after so long; no thread of the executor waits meanwhile.

    TensorFlow has no operation that sleeps but in its pipelines of data.
    """
    scalars = {"output_types": [tf.int64], "output_shapes": [tf.TensorShape([])]}
    first = tf.constant(0, tf.int64)
    stop = tf.constant(1, tf.int64)
    single = tf.raw_ops.RangeDataset(start=first, stop=stop, step=stop, **scalars)
    late = tf.raw_ops.SleepDataset(
        input_dataset=single, sleep_microseconds=tf.cast(1e6 * seconds, tf.int64), **scalars
    )
    return tf.raw_ops.DatasetToSingleElement(dataset=late, **scalars)[0]


@dataclass(frozen=True)
class Pulled:
    """The parameters of a step: trained [trained_size], statistics [statistics_size].

    `norm` is that of the gradient of the step before, ahead of clipping. `step`, int64, is the step
    that the parameters are for; `ready` whether the step before is applied.
    """

    trained: Any
    statistics: Any
    norm: Any
    step: Any
    ready: Any


class StepShards(PlacedVector[StepShard]):
    """The whole vector; each step updates it."""

    def __init__(
        self,
        layout: Layout,
        state: VectorState,
        optimizer: Optimizer,
        places: Sequence[str],
        wire: Wire | None = None,
        *,
        recipe: StepRecipe,
    ) -> None:
        """Place `state` on one device for each of `places`.

        Raises ValueError for a codec with a memory.
        """
        wire = wire or Wire()
        self.nodes = Nodes(wire.push, layout.trained_size, recipe.arithmetic)
        self._recipe = recipe
        super().__init__(layout, state, optimizer, places, wire, partial(StepShard, recipe=recipe))
        # The workers' functions, one for each size of a part, call these. Traced once for all, 32
        # slots take 0.8 s instead of 3.6 s (measured).
        self._advance = tf.function(self._advanced, autograph=False)
        self._advance_if_whole = tf.function(partial(self._advanced, strict=True), autograph=False)
        self._contribute = tf.function(self._contributed, autograph=False)

    def advance(
        self, step: Any, counted: Any, share: Any, rate: Any, generation: Any = 0
    ) -> Pulled:
        """Finish step `step` of `generation` unless another worker has, and pull.

        `counted`, float32 [slots], is 1 for each slot that counts; `share` turns their sum
        into a mean over the batch (1 if all of them count); `rate` is the step's learning rate.
        """
        return Pulled(*self._advance(step, counted, share, rate, generation))

    def wait_until_whole(
        self, step: Any, is_whole: Any, generation: Any, patience: Any, pause: Any
    ) -> Any:
        """Return whether all slots of `step` are here, after at most `patience` seconds, float32.

        It asks unless `is_whole` is true, again after `pause` seconds, and later after a share of
        the time that it has waited. Only the pauses count: a worker's clock may be set meanwhile.
        """
        first = self.shards[0]
        with tf.device(first.device):  # once, and not with each question
            request = tf.identity(step_words(step, generation))

        def ask(waited: Any, _: Any) -> tuple[Any, Any]:
            is_whole = tf.identity(first.is_whole(request))
            seconds = tf.clip_by_value(PAUSE_SHARE * waited, pause, LONGEST_PAUSE_SECONDS)
            with tf.control_dependencies([paused(tf.where(is_whole, 0.0, seconds))]):
                return waited + seconds, tf.identity(is_whole)

        _, is_whole = tf.while_loop(
            lambda waited, is_whole: ~is_whole & (waited < patience),
            ask,
            [tf.constant(0.0), is_whole],
            parallel_iterations=1,
        )
        return is_whole

    def advance_if_whole(
        self, is_whole: Any, step: Any, counted: Any, rate: Any, generation: Any
    ) -> Pulled:
        """Finish step `step` if `is_whole`, and pull. `counted`, float32 [slots], is all ones."""
        awaited = tf.where(is_whole, step, tf.constant(NO_STEP, tf.int64))
        pulled = Pulled(*self._advance_if_whole(awaited, counted, 1.0, rate, generation))
        return replace(pulled, ready=pulled.ready & is_whole)

    def _advanced(
        self,
        step: Any,
        counted: Any,
        share: Any,
        rate: Any,
        generation: Any,
        *,
        strict: bool = False,
    ) -> tuple[Any, ...]:
        halves = step_words(step, generation)
        request = tf.concat([halves, [share], counted], 0)
        closed = [tf.identity(shard.close(request)) for shard in self.shards]
        squares = tf.concat([answer[:-1] for answer in closed], 0)
        ready = tf.reduce_all(tf.stack([answer[-1] for answer in closed]) > 0.0)
        total_norm = self._recipe.arithmetic.norm(squares)
        norm, scale = clipped(total_norm, share, self._recipe.clip_norm)
        if strict:  # a shard that lacks a slot has squares of another step
            step = tf.where(ready, step, tf.constant(NO_STEP, tf.int64))
            halves = step_words(step, generation)
        request = tf.concat([halves, tf.stack([scale, share, rate])], 0)
        pulled = [tf.identity(shard.advance(request)) for shard in self.shards]
        trained, statistics, versions = self._joined(pulled)
        return trained, statistics, norm, tf.reduce_min(versions), ready

    def logged(self, steps: Any) -> Any:
        """The figures of these steps, which the first shard keeps: see `StepShard.logged`."""
        return tf.identity(self.shards[0].logged(steps))

    def contribute(self, nodes: Any, step: Any, firsts: Any, generation: Any, figures: Any) -> Any:
        """Send subtrees' sums; return the answer of each shard, the first one's last, int64.

        See `StepShard.contribution`.
        """
        return self._contribute(nodes, step, firsts, generation, figures)

    def _contributed(
        self, nodes: Any, step: Any, firsts: Any, generation: Any, figures: Any
    ) -> Any:
        header = step_words(step, generation)

        def sent_to(shard: StepShard) -> Any:
            update = shard.contribution(self.layout, nodes, firsts, header, figures)
            return tf.identity(shard.contribute(update))

        fresh = [sent_to(shard) for shard in self.shards[1:]]
        # The first shard last, where workers ask it for all whether a step is whole.
        with tf.control_dependencies(fresh if self._recipe.logs else []):
            nodes = tf.identity(nodes)
            fresh.append(sent_to(self.shards[0]))
        return tf.stack(fresh)
