"""The networks that `benchmarks.kernel` measures, and the work in one step of each."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from core.inventory.slots import LIBRARY
from core.inventory.training import TrainJob
from core.models.network import Network, build

STEPS = 128
CHANNELS = 9
CLASSES = 6
LEARNING_RATE = 1e-3
CLIP_NORM = 1.0
WIDTHS = (32, 64, 128, 256)
WEIGHTS_SEED = 0
DATA_SEED = 1


@dataclass(frozen=True)
class Cell:
    """One network and the windows of one step.

    `stacked` x `highway` as the thesis counts its layers and cells.
    """

    name: str
    model: str
    hidden: int = 0
    stacked: int = 0
    highway: int = 0
    bidirectional: bool = False
    batch: int = 100

    def job(self, slots: int, arithmetic: str) -> TrainJob:
        """The job that trains it, for the engine's own gradient."""
        settings: dict[str, Any] = {"name": self.model}
        if self.model == "thesis":
            settings |= {
                "hidden": self.hidden,
                "n_stacked_layers": self.stacked,
                "n_layers_in_highway": self.highway,
                "bidirectional": self.bidirectional,
            }
        return TrainJob.model_validate(
            {
                "model": settings,
                "batch_size": self.batch,
                "slots": slots,
                "arithmetic": arithmetic,
                "clip_norm": CLIP_NORM,
                "label_smoothing": 0.0,
            }
        )

    def network(self) -> Network:
        """The engine's network."""
        return build(
            self.job(1, LIBRARY).model, window_steps=STEPS, channels=CHANNELS, classes=CLASSES
        )

    def order(self) -> dict[str, Any]:
        """The order for a contestant; the same for all."""
        return {**asdict(self), "learning_rate": LEARNING_RATE, "clip_norm": CLIP_NORM}

    def arrays(self) -> dict[str, Any]:
        """Return parameters by name, windows (batch, steps, channels), classes (batch,)."""
        network = self.network()
        draw = np.random.Generator(np.random.Philox(DATA_SEED))
        return {
            **network.layout.unpack(network.initial(WEIGHTS_SEED)),
            "windows": draw.standard_normal((self.batch, STEPS, CHANNELS)).astype(np.float32),
            "classes": draw.integers(0, CLASSES, self.batch).astype(np.int32),
        }


def _plain(hidden: int) -> Cell:
    return Cell(f"3x0 h{hidden}", "thesis", hidden, 3, 0)


PLAIN = {f"h{hidden}": _plain(hidden) for hidden in WIDTHS}
DEEP = Cell("dblstm", "dblstm", batch=64)
BOTH_WAYS = Cell("2x2 bi h32", "thesis", 32, 2, 2, True)
HEADLINES = {**PLAIN, "dblstm": DEEP, "2x2 bi h32": BOTH_WAYS}
"""The cells the summary has keys for, by key."""

SMALLEST = Cell("1x0 h8", "thesis", 8, 1, 0)

GRID = (
    *PLAIN.values(),
    *(
        Cell(f"{n}x{n} bi h{hidden}", "thesis", hidden, n, n, True)
        for n in (2, 3)
        for hidden in WIDTHS
    ),
    DEEP,
)


def matrix_parameters(network: Network) -> int:
    """Weights that multiply at every time step.

    All matrices but the head's, which sees one step of 128.
    """
    return sum(
        slot.spec.size
        for slot in network.layout.slots
        if slot.spec.decayed and not slot.spec.name.startswith("head/")
    )


def floor_flop(cell: Cell) -> int:
    """Floating-point operations no implementation can do without.

    For each weight, step and window a product and a sum forwards, the same for the gradient by the
    weight, and the same for the gradient by what it multiplied.
    """
    return 6 * matrix_parameters(cell.network()) * STEPS * cell.batch
