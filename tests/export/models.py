"""Built-in networks with random parameters and windows to export, small enough for a test of every format."""

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from cluster.export.formats.format import FORMATS
from cluster.export.graph import traced
from cluster.exported.description import FILES, Input, Output
from cluster.inventory.training import ModelConfig
from cluster.jobs.train_result import StoredModel
from cluster.models.network import build
from tests.exported import small
from worker_node.recordings import Standardization

STEPS, CHANNELS, CLASSES = 32, 9, 4
CONFIG: TypeAdapter[Any] = TypeAdapter(ModelConfig)
SMALL: dict[str, dict[str, Any]] = {
    "thesis": {"hidden": 8},
    "residual": {"hidden": 8, "layers": 2},
    "dblstm": {"units": 8},
    "conv-lstm": {"hidden": 8, "filters": 8},
    "kth": {"hidden": 8},
    "spectral": {"hidden": 16},
    "hybrid": {"hidden": 8, "filters": 8, "statistics_hidden": 16},
}
"""By name, every built-in network."""


@dataclass(frozen=True)
class Case:
    """A model, raw windows, and what TensorFlow answers."""

    model: StoredModel
    windows: np.ndarray
    logits: np.ndarray

    def exported(self, to: str, folder: Path, *, quantized: bool = False) -> np.ndarray:
        """What the export answers to the windows."""
        path = folder / FILES[to]
        FORMATS[to].write(self.model, path, quantized=quantized)
        return np.asarray(self.opened(to, path)(self.windows))

    def opened(self, to: str, path: Path) -> Any:
        """The export as a function."""
        shape, problem = self.windows.shape[1:], self.model.network.problem
        description = small.described(b"", to)  # type: ignore[arg-type]
        channels = tuple(map(str, range(shape[1]))) if len(shape) == 2 else ()
        taken = Input("windows", problem.input_dtype, len(channels) and shape[0], channels, "", shape)  # type: ignore[arg-type]
        description = replace(description, input=taken, output=Output("logits", problem.outputs))
        return FORMATS[to].opened(path, description)


@cache
def case(name: str, channels: int = CHANNELS, scale: float = 3.0, **settings: Any) -> Case:
    """`scale` spreads the parameters, so that cells of an LSTM grow beyond what a converter clips."""
    chosen = CONFIG.validate_python({"name": name, **SMALL.get(name, {}), **settings})
    network = build(chosen, window_steps=STEPS, channels=channels, classes=CLASSES)
    random = np.random.default_rng(0)
    mean, deviation = random.normal(size=channels), random.uniform(0.1, 0.5, channels)
    walks = random.normal(size=(6, STEPS, channels)).cumsum(1)
    standardization = Standardization(mean.astype(np.float32), deviation.astype(np.float32))
    windows = (walks / walks.std((0, 1)) * deviation + mean).astype(np.float32)
    standardized = (windows - standardization.mean) / standardization.deviation
    vector = network.initial(0) * np.float32(scale)
    vector = network.measured(vector, standardization.packed(), [standardized])
    model = StoredModel(network, vector, standardization, tuple("abcdefgh"[:CLASSES]))
    return Case(model, windows, np.asarray(traced(model)(windows)))
