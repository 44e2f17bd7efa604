"""A built-in network as the library computes it: gradients of slots, and answers.

The bits follow from the recipe alone; docs/kernels.md says why.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from core.ground.lazy import np, tf
from core.models.network import BuiltIn, Problem
from core.models.operations import Operations, Tensor
from core.models.tasks import Classification
from core.parameters import Layout
from kernels.library import nodes, operations
from kernels.writing import KernelOperations, SplitNetwork

if TYPE_CHECKING:
    from numpy.typing import NDArray

OWN_THREADS = 0
"""One thread for each core that the process which computes has to itself."""


@dataclass(frozen=True)
class SlotSums:
    """What some slots of a batch came to.

    `nodes` are float32 [trained_size + statistics_size], one for each aligned subtree in order;
    `losses` and `hits`, float32 (slots,), are parts of the batch's mean loss, and right answers.
    """

    nodes: list[Any]
    losses: Any
    hits: Any


@dataclass(frozen=True)
class SlotsOfBatch:
    """The slots `first` (int32, traced) up to `first + count` of the `slots` of a batch.

    Where they are no aligned subtree, `first` and `count` are numbers. `seed`, int32 (2,), is the
    batch's.
    """

    batch_size: int
    slots: int
    first: Any
    count: Any
    seed: Any

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
        kernel_operations = KernelOperations(network)
        written = kernel_operations.written()
        self._words = np.array(written.words, np.int32)
        self._constants = written.constants
        self._split: SplitNetwork | None = None
        if isinstance(network, BuiltIn) and network.measures:
            self._split = kernel_operations.split(network.measures)

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
        program, inputs = self._program(vector[1], labelled[0], rows)
        sums, losses, hits = operations().pscluster_gradient(
            program=program,
            constants=self._constants,
            trained=vector[0],
            statistics=vector[1],
            windows=inputs,
            labels=tf.cast(labelled[1], tf.int32),
            weights=weights,
            settings=tf.concat([tf.stack(settings), cut.seed], 0),
            smoothing=smoothing,
        )
        if apart:
            node_count = cut.count
        else:
            node_count = len(cut.subtrees)
        sums = tf.ensure_shape(sums, [node_count, layout.trained_size + layout.statistics_size])
        count = cut.known_count
        return SlotSums(
            tf.unstack(sums), tf.ensure_shape(losses, [count]), tf.ensure_shape(hits, [count])
        )

    def answers(
        self, trained: Any, statistics: Any, windows: Any, rows: RowsOfSet | None = None
    ) -> Any:
        """Return the logits (n, classes) of windows (n, steps, channels), outside training.

        With `rows` the library remembers what the network measures of each window.
        """
        classes = self.network.problem.classes
        program, inputs = self._program(statistics, windows, rows)
        logits = operations().pscluster_logits(
            program=program,
            constants=self._constants,
            trained=trained,
            statistics=statistics,
            windows=inputs,
            settings=[self._threads, classes],
        )
        return tf.ensure_shape(logits, [windows.shape[0], classes])

    def _program(
        self, statistics: Any, windows: Any, rows: RowsOfSet | None
    ) -> tuple[NDArray[np.int32], Any]:
        """Return the program that continues from what it gets in the place of the windows."""
        if rows is None or self._split is None:
            return self._words, windows
        split = self._split
        measured = operations().pscluster_recalled(
            program=split.measuring,
            constants=self._constants,
            trained=[],
            statistics=statistics,
            windows=windows,
            rows=rows.rows,
            source=rows.source,
            settings=[self._threads, split.count, rows.total],
        )
        if split.reads_windows:
            samples = tf.reshape(windows, [tf.shape(windows)[0], -1])
            measured = tf.concat([samples, measured], 1)
        return np.array(split.rest, np.int32), measured
