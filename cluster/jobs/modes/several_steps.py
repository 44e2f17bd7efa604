"""The function of a worker that does several steps of `sync` in one call.

In each step the worker waits for the others' parts of the step before: it asks the first server.
The servers keep the figures of these steps: the reply of a worker that died in the midst of a call
is lost, but not the steps that it took part in.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cluster.jobs.modes import (
    Setup,
    float32,
    int32,
    int64,
    standardization_of,
    time_after,
)
from core.consistency import MOST_UPDATES, SEVERAL_SECONDS
from core.engine.runtime import Traced, trace
from core.ground.lazy import tf
from kernels.library import nodes as nodes_of
from ps_node.step_shards import StepShards
from ps_node.steps import NO_STEP, WHOLE
from worker_node.gradient import LabelledExamples

HEAD = 5
"""Elements at the beginning of a reply: steps done, and those of them that the worker computed;
seconds of pull, compute and push."""
MOST_ANSWERED_SLOTS = 64
"""Slots of a worker at most whose figures fit into an answer; those of more are fetched."""
WAIT_STEPS = 4.0
"""A worker waits for the others' parts SEVERAL_SECONDS and the time of so many steps."""
PAUSE_STEPS = 0.05
LEAST_PAUSE_SECONDS = 0.0005
"""It asks whether they are there after this share of a step, and no sooner."""


@dataclass(frozen=True)
class SeveralDone:
    """What a call came to: how many steps are `done`, and the `seconds` of all of them.

    The worker `computed` so many, the last ones; others had finished the steps before.
    `norms` is by step that of the step before, `sums` loss and right answers of a whole step,
    `figures`, float32 (slots, 2), those of the worker's slots in the last step it did, None if that
    step has its sums. `seconds` are of pull, compute and push.
    """

    done: int
    computed: int
    seconds: tuple[float, float, float]
    norms: Mapping[int, float]
    sums: Mapping[int, tuple[float, float]]
    figures: NDArray[np.float32] | None

    @classmethod
    def of(cls, value: NDArray[np.float32], first: int, steps: int) -> "SeveralDone":
        """Read the reply to a call of so many steps from `first` on."""
        done, computed = map(int, value[:2])
        pull, compute, push = map(float, value[2:HEAD])
        norms, halves, logged, last = np.split(value[HEAD:], np.cumsum([steps, 2, 4 * steps]))
        (closed,) = halves.view(np.int64)
        figures = None
        if computed and first + done - 1 > closed:
            figures = last.reshape(-1, 2)
        sums = {
            step: (float(loss), float(hits))
            for step, (loss, hits) in enumerate(logged.view(np.float64).reshape(-1, 2), first)
            if step <= closed
        }
        return cls(
            done,
            computed,
            (pull, compute, push),
            {first + place: float(norms[place]) for place in range(done)},
            sums,
            figures,
        )


class SeveralSteps:
    """The functions for several steps, of few slots and of many."""

    def __init__(self, setup: Setup, shards: StepShards) -> None:
        """Trace them."""
        self._short = self._traced(
            setup, shards, HEAD + 2 + 5 * MOST_UPDATES + 2 * MOST_ANSWERED_SLOTS
        )
        self._long = self._short
        if setup.job.pieces > MOST_ANSWERED_SLOTS:
            self._long = self._traced(setup, shards, None)

    def function(self, slots: int) -> Traced:
        """Return the function for a part of so many slots."""
        if slots > MOST_ANSWERED_SLOTS:
            return self._long
        return self._short

    @staticmethod
    def arguments(
        step: int,
        generation: int,
        step_seconds: float,
        rates: Sequence[float],
        seeds: Sequence[NDArray[np.int32]],
        part: range,
    ) -> list[Any]:
        """Return the function's first arguments, for steps from `step` on of the slots `part`.

        A call finishes the step before each of its own: `rates` are those of these steps. `seeds`
        are of its own. Another worker's part takes about `step_seconds`.
        """
        return [
            np.array([step, generation], np.int64),
            np.array(
                [
                    SEVERAL_SECONDS + WAIT_STEPS * step_seconds,
                    max(LEAST_PAUSE_SECONDS, PAUSE_STEPS * step_seconds),
                ],
                np.float32,
            ),
            np.array(rates, np.float32),
            np.stack(seeds),
            np.array([first for first, _ in nodes_of(part.start, len(part))], np.int32),
        ]

    @staticmethod
    def _traced(setup: Setup, shards: StepShards, longest: int | None) -> Traced:
        """Return the function; `SeveralDone` reads its result, float32."""
        step_of = part_of_step(setup, shards)
        pieces = setup.job.pieces

        def train(
            begin_and_generation: Any,
            patience_and_pause: Any,
            rates: Any,
            seeds: Any,
            firsts: Any,
            sizes: Any,
            rows: Any,
            standardization: Any,
        ) -> Any:
            begin, generation = tf.unstack(begin_and_generation)
            waits = tf.unstack(patience_and_pause)
            steps = tf.shape(rates)[0]
            rows = tf.reshape(rows, [steps, -1])
            all_slots = tf.ones([pieces])

            def next_step(
                k: Any, _: Any, is_whole: Any, counted: Any, norms: Any, last: Any
            ) -> tuple[Any, ...]:
                step = begin + tf.cast(k, tf.int64)
                is_whole = shards.wait_until_whole(step - 1, is_whole, generation, *waits)
                started = time_after(is_whole)
                with tf.control_dependencies([started]):
                    before = tf.identity(step - 1)
                now = shards.advance_if_whole(is_whole, before, all_slots, rates[k], generation)
                # Others may have finished this step, and further ones, in its place.
                counts = now.ready & tf.equal(now.step, step)
                own_step = tf.where(counts, step, tf.constant(NO_STEP, tf.int64))
                part = (own_step, generation, firsts, sizes, rows[k], seeds[k], standardization)
                ends, figures, is_last = step_of(now, *part)
                times = tf.stack(ends) - tf.stack([started, *ends[:-1]])
                line = tf.concat([[1.0], times], 0)
                counted = counted + tf.where(counts, line, tf.zeros_like(line))
                reached = tf.cast(tf.maximum(step + 1, now.step) - begin, tf.int32)
                after = tf.where(now.ready, tf.minimum(reached, steps), k)
                norm = tf.where(counts, now.norm, 0.0)
                norms = tf.tensor_scatter_nd_update(norms, [[k]], [norm])
                last = tf.where(counts, figures, last)
                return after, now.ready, is_last, counted, norms, last

            shapes = [[], [], [], [4], [None], [None, 2]]
            done, _, _, counted, norms, last = tf.while_loop(
                lambda k, ready, *_: ready & (k < steps),
                next_step,
                [
                    tf.constant(0),
                    tf.constant(True),
                    tf.constant(True),  # the coordinator has the replies to the step before
                    tf.zeros([4], tf.float64),
                    tf.zeros([steps]),
                    tf.zeros([tf.shape(sizes)[0], 2]),
                ],
                shape_invariants=[tf.TensorShape(shape) for shape in shapes],
                parallel_iterations=1,
            )
            with tf.control_dependencies([done]):
                numbers = begin + tf.range(tf.cast(steps, tf.int64))
            head = tf.cast(tf.concat([[tf.cast(done, tf.float64)], counted], 0), tf.float32)
            return tf.concat([head, norms, shards.logged(numbers), tf.reshape(last, [-1])], 0)

        signature = [int64(2), float32(2), float32(None), int32(None, 2), int32(None)]
        windows = standardization_of(setup.windows)
        return trace(
            train, *signature, int32(None), int32(None), windows, name="part", longest=longest
        )


def part_of_step(setup: Setup, shards: StepShards, slots: int | None = None) -> Any:
    """Return the function, in a graph, of a worker's part of a step behind its pull.

    The part has so many slots, an aligned subtree, or as many neighbours as the call says. The
    function returns the times at which pull, compute and push ended, loss and right answers of each
    slot, float32 (slots, 2), and whether the part was the last of its step.
    """
    windows = setup.windows
    gradient_of = setup.gradient_of

    def computed_and_pushed(
        now: Any,
        step: Any,
        generation: Any,
        firsts: Any,
        sizes: Any,
        rows: Any,
        seed: Any,
        standardization: Any,
    ) -> tuple[list[Any], Any, Any]:
        pulled = time_after(now.trained, now.statistics)
        inputs, classes = windows.gather(rows, standardization)
        examples = LabelledExamples(inputs, classes, sizes, windows.gather_weights(rows))
        row_names = windows.identified(rows, standardization)
        part = (firsts[0], slots or tf.shape(sizes)[0])
        gradients = gradient_of.of_fit(standardization, row_names).sums(
            (now.trained, now.statistics), examples, part, seed, shards.nodes, ragged=not slots
        )
        nodes = gradients.nodes
        if slots:
            nodes = tf.stack(nodes)
        computed = time_after(nodes)
        figures = tf.stack([gradients.losses, gradients.hits], 1)
        answers = shards.contribute(nodes, step, firsts, generation, figures)
        is_last = tf.equal(answers[-1], WHOLE)
        return [pulled, computed, time_after(answers)], figures, is_last

    return computed_and_pushed
