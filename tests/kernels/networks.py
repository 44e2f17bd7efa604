"""Every built-in network, small, with a batch and the library's program of it."""

import contextlib
import math
import platform
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.inventory.fields import Choice
from core.models.conv_lstm import ConvolutionalModel
from core.models.dblstm import DeepBidirectionalModel
from core.models.hybrid import HybridModel
from core.models.kth import KthModel
from core.models.network import BuiltIn, build
from core.models.residual import ResidualModel
from core.models.spectral import SpectralModel
from core.models.thesis import ThesisModel
from kernels.build import KINDS
from kernels.library import Floats, UnfitProgramError, loaded, nodes
from kernels.writing import CompiledNetwork, KernelOperations

STEPS, CHANNELS, CLASSES = 24, 6, 5
WINDOWS, SLOTS = 21, 8

MODELS: dict[str, Choice] = {
    "thesis": ThesisModel(hidden=17, n_stacked_layers=2),
    "highway": ThesisModel(
        hidden=10, n_layers_in_highway=2, n_stacked_layers=2, bidirectional=True, batch_norm=True
    ),
    "appended": ThesisModel(hidden=8, n_stacked_layers=1, instance_norm="append"),
    "residual": ResidualModel(hidden=9, layers=2),
    "conv-lstm": ConvolutionalModel(filters=8, hidden=9, layers=1),
    "dblstm": DeepBidirectionalModel(units=20),
    "kth": KthModel(hidden=33),
    "spectral": SpectralModel(hidden=16, dropout=0.0),
    "hybrid": HybridModel(filters=8, hidden=8, layers=1, statistics_hidden=8, dropout=0.0),
    "one-step": ThesisModel(hidden=8, n_stacked_layers=1),
    "long": ThesisModel(hidden=8, n_stacked_layers=1),
}
STEPS_OF = {"one-step": 1, "long": 150}
"""Of a window, where it has another number: a long one's gradient comes in several chunks, and not
in the same ones on each kind of processor."""
GROUPED = {"highway": 4}
"""How many slots batch norm takes together, where it is more than one."""


@dataclass(frozen=True)
class Recipe:
    """What all workers share of a training; `group` is how many slots batch norm takes together."""

    group: int
    batch_size: int = WINDOWS
    slots: int = SLOTS
    smoothing: float = 0.1
    seed: tuple[int, int] = (7, 8)

    def borders(self) -> list[int]:
        """Return the first window of each slot, and the number of windows."""
        return [self.batch_size * slot // self.slots for slot in range(self.slots + 1)]


@dataclass(frozen=True)
class Batch:
    """Windows with their classes and their weights in the loss."""

    labels: NDArray[np.int32]
    windows: Floats
    weights: Floats


@dataclass(frozen=True)
class Sums:
    """Gradients and statistics of the nodes; each slot's loss and hits; each window's logits."""

    nodes: Floats
    losses: Floats
    hits: Floats
    logits: Floats


@dataclass(frozen=True)
class Case:
    """A network by its name; `keep` is the share of units that its dropout keeps.

    `words` stand in the place of those that the network's program has.
    """

    name: str
    keep: float = 1.0
    words: Sequence[int] = ()

    @property
    def steps(self) -> int:
        return STEPS_OF.get(self.name, STEPS)

    @cached_property
    def network(self) -> BuiltIn:
        return build(
            MODELS[self.name],
            window_steps=self.steps,
            channels=CHANNELS,
            classes=CLASSES,
            keep_probability=self.keep,
        )

    @cached_property
    def written(self) -> CompiledNetwork:
        written = KernelOperations(self.network).written()
        return replace(written, words=self.words or written.words)

    @cached_property
    def vector(self) -> tuple[Floats, Floats]:
        whole = self.network.initial(11)
        size = self.network.layout.trained_size
        return whole[:size], whole[size:]

    @cached_property
    def batch(self) -> Batch:
        draws = np.random.default_rng(3)
        windows = draws.normal(size=(WINDOWS, self.steps, CHANNELS)).astype(np.float32)
        labels = draws.integers(0, CLASSES, WINDOWS).astype(np.int32)
        weights = draws.uniform(0.5, 2.0, WINDOWS).astype(np.float32)
        return Batch(labels, windows, weights)

    @property
    def recipe(self) -> Recipe:
        return Recipe(GROUPED.get(self.name, 1))

    def part(self, first: int, count: int) -> Batch:
        """Return the windows of some slots."""
        borders = self.recipe.borders()
        rows = slice(borders[first], borders[first + count])
        return Batch(*(part[rows] for part in vars(self.batch).values()))

    def record(self, slots: tuple[int, int], apart: bool, batch: Batch, recipe: Recipe) -> bytes:
        """Return a call as `read_call` of the library reads it."""
        sizes = [*slots, CLASSES, apart, recipe.batch_size, recipe.group, *recipe.seed]
        parts = [np.array([recipe.slots, *sizes]), np.array(recipe.smoothing, np.float32)]
        words = np.array(self.written.words, np.int32)
        for array in (words, self.written.constants, *self.vector, *vars(batch).values()):
            parts += [np.array(array.size), array]
        return b"".join(array.tobytes() for array in parts)

    def sums(
        self,
        slots: tuple[int, int] = (0, SLOTS),
        *,
        apart: bool = False,
        threads: int = 1,
        kind: str = "",
        **other: Any,
    ) -> Sums:
        """Compute some slots; `other` are another batch or recipe than the case's."""
        batch = other.get("batch") or self.part(*slots)
        record = self.record(slots, apart, batch, other.get("recipe") or self.recipe)
        rows = slots[1] if apart else len(nodes(*slots))
        shapes = [(rows, sum(part.size for part in self.vector)), (slots[1],), (slots[1],)]
        shapes.append((len(batch.labels), CLASSES))
        borders = np.cumsum([math.prod(shape) for shape in shapes])
        found = loaded().called(record, borders[-1], threads=threads, kind=kind)
        parts = np.split(found, borders[:-1])
        return Sums(*(part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)))


def bytes_of(sums: Sums) -> bytes:
    """Return all bits of a result."""
    return b"".join(part.tobytes() for part in vars(sums).values())


@cache
def kinds_of_this_processor() -> list[str]:
    found = []
    for kind in KINDS[platform.machine()]:
        with contextlib.suppress(UnfitProgramError):
            Case("kth").sums(kind=kind)
            found.append(kind)
    return found
