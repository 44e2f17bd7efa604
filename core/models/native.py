"""A built-in network as the library computes it: gradients of slots, and answers.

The bits follow from the recipe alone; docs/kernels.md says why.
"""

from dataclasses import dataclass
from typing import Any, Protocol

from core.ground.lazy import np, tf
from core.models.network import Problem
from core.models.operations import Operations, Tensor
from core.models.tasks import Classification
from core.parameters import Layout
from kernels.library import nodes, operations
from kernels.writing import CompiledNetwork, KernelOperations

OWN_THREADS = 0
"""One thread for each core that the process which computes has to itself."""


@dataclass(frozen=True)
class SlotSums:
    """What some slots of a batch came to.

    `nodes` are float32 [trained_size + statistics_size], one for each aligned subtree in order; of
    a ragged range they are the rows of one tensor. `losses` and `hits`, float32 (slots,), are parts
    of the batch's mean loss, and right answers.
    """

    nodes: Any
    losses: Any
    hits: Any


@dataclass(frozen=True)
class SlotsOfBatch:
    """The slots `first` (int32, traced) up to `first + count` of the `slots` of a batch.

    Where they are no aligned subtree, `first` and `count` are numbers, or the cut is `ragged`.
    `seed`, int32 (2,), is the batch's.
    """

    batch_size: int
    slots: int
    first: Any
    count: Any
    seed: Any
    ragged: bool = False

    @property
    def first_row(self) -> Any:
        """The first window's place in the batch, int32."""
        return self.batch_size * self.first // self.slots

    @property
    def known_count(self) -> int | None:
        """The number of slots, or None if only the call knows it."""
        if isinstance(self.count, int):
            return self.count
        return None

    @property
    def subtrees(self) -> list[Any]:
        """The slots of each aligned subtree, in order."""
        if not isinstance(self.first, int):
            return [self.count]
        return [size for _, size in nodes(self.first, self.count)]


@dataclass(frozen=True)
class RowsOfSet:
    """Which `rows`, int32 (n,), of the `total` of a data set the windows of a call are.

    `source`, int32 words, says which set that is, and how it is standardized.
    """

    rows: Any
    source: Any
    total: int


class WrittenNetwork(Protocol):
    """What a program is written of: a built-in network, or a part of one."""

    layout: Layout
    problem: Problem

    @property
    def measuring(self) -> Any:
        """Return the part of it that follows from windows alone, or None."""

    def logits(self, ops: Operations, windows: Tensor) -> Tensor:
        """Return (batch, `problem.outputs`) for windows (batch, steps, channels)."""


class LibraryClassification(Classification):
    """A classification whose losses and shares the library computes."""

    def _losses(self, targets: Any, answers: Any, smoothing: float) -> Any:
        assert not smoothing, "a training has the losses of its gradients"
        labels = tf.cast(targets, tf.int32)
        losses = operations().pscluster_judged(logits=answers, labels=labels).losses
        return tf.ensure_shape(losses, targets.shape)

    def _shares(self, answers: Any) -> Any:
        labels = tf.zeros(tf.shape(answers)[:1], tf.int32)
        shares = operations().pscluster_judged(logits=answers, labels=labels).shares
        return tf.ensure_shape(shares, answers.shape)


class NativeNetwork:
    """The library's program of a network, in a graph."""

    def __init__(self, network: WrittenNetwork, *, threads: int = OWN_THREADS) -> None:
        self.network = network
        self._threads = threads
        self._whole = KernelOperations(network).written()
        self._measuring = measuring = network.measuring
        if measuring is not None:
            count = measuring.problem.outputs
            self._first = KernelOperations(measuring).written()
            self._rest = KernelOperations(
                network, count, reads_samples=measuring.reads_samples
            ).written()

    def gradient(
        self,
        vector: tuple[Any, Any],
        labelled: tuple[Any, Any],
        weights: Any,
        cut: SlotsOfBatch,
        smoothing: float,
        *,
        apart: bool = False,
        rows: RowsOfSet | None = None,
    ) -> SlotSums:
        """Return the sums over the cut's slots: a node for each subtree, `apart` for each slot.

        `vector` is the trained parameters and the statistics. `labelled` is windows (n, steps,
        channels) and their classes, int32 (n,); `weights`, (n,), may be None. With `rows` the
        library remembers what the network measures of each window.
        """
        layout = self.network.layout
        classes = self.network.problem.classes
        settings = [
            *(cut.batch_size, cut.slots, cut.first, cut.count, 1, self._threads, classes),
            int(apart),
        ]
        if weights is None:
            weights = tf.zeros([0])
        sums, losses, hits = operations().pscluster_gradient(
            **self._read(vector[1], labelled[0], rows),
            trained=vector[0],
            labels=tf.cast(labelled[1], tf.int32),
            weights=weights,
            settings=tf.concat([tf.stack(settings), cut.seed], 0),
            smoothing=smoothing,
        )
        if cut.ragged:
            node_count = None
        elif apart:
            node_count = cut.count
        else:
            node_count = len(cut.subtrees)
        sums = tf.ensure_shape(sums, [node_count, layout.trained_size + layout.statistics_size])
        count = cut.known_count
        return SlotSums(
            sums if cut.ragged else tf.unstack(sums),
            tf.ensure_shape(losses, [count]),
            tf.ensure_shape(hits, [count]),
        )

    def answers(
        self, trained: Any, statistics: Any, windows: Any, rows: RowsOfSet | None = None
    ) -> Any:
        """Return the logits (n, classes) of windows (n, steps, channels), outside training.

        With `rows` the library remembers what the network measures of each window.
        """
        classes = self.network.problem.classes
        logits = operations().pscluster_logits(
            **self._read(statistics, windows, rows),
            trained=trained,
            settings=[self._threads, classes],
        )
        return tf.ensure_shape(logits, [windows.shape[0], classes])

    def _read(self, statistics: Any, windows: Any, rows: RowsOfSet | None) -> dict[str, Any]:
        """Return what an operation reads of the program, and what the program reads."""
        measuring = self._measuring
        if rows is None or measuring is None:
            return _read_by(self._whole, statistics, windows)
        count = measuring.problem.outputs
        inputs = operations().pscluster_recalled(
            **_read_by(self._first, statistics, windows),
            trained=[],
            rows=rows.rows,
            source=rows.source,
            settings=[self._threads, count, rows.total],
        )
        if measuring.reads_samples:
            samples = tf.reshape(windows, [tf.shape(windows)[0], -1])
            inputs = tf.concat([samples, inputs], 1)
        return _read_by(self._rest, statistics, inputs)


def _read_by(program: CompiledNetwork, statistics: Any, windows: Any) -> dict[str, Any]:
    return {
        "program": np.array(program.words, np.int32),
        "constants": program.constants,
        "statistics": statistics,
        "windows": windows,
    }
