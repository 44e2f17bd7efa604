"""Built-in networks with random parameters and windows, small enough for every format."""

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from cluster.export.graph import traced
from cluster.export.request import FORMATS
from cluster.jobs.train_result import StoredModel
from core.exported.description import FILES, Input, Logits
from core.exported.verified import LARGEST_DIFFERENCE
from core.inventory.training import ModelConfig
from core.models.network import build
from tests.core.exported import small
from tests.lazy import onnx
from tests.tables import table
from worker_node.recordings import Standardization

STEPS = 32
CHANNELS = 9
CLASSES = 4
CONFIG: TypeAdapter[Any] = TypeAdapter(ModelConfig)
SMALL: dict[str, dict[str, Any]] = table("cluster/export/rows", "small")
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
        shape = self.windows.shape[1:]
        problem = self.model.network.problem
        kind: Any = problem.input_dtype
        if len(shape) == 2:
            channels = tuple(map(str, range(shape[1])))
            taken = Input("windows", kind, shape[0], channels, "", shape)
        else:
            taken = Input("windows", kind, 0, (), "", shape)
        description = small.described(b"", to)  # type: ignore[arg-type]
        return FORMATS[to].answers_of(
            path, replace(description, input=taken, output=Logits("logits", problem.outputs))
        )

    def answers_alike(self, to: str, folder: Path, apart: float = 1e-3) -> None:
        """The export answers as TensorFlow does, and its answers differ by more than `apart`."""
        assert np.ptp(self.logits, 0).max() > apart
        found = self.exported(to, folder)
        np.testing.assert_allclose(found, self.logits, rtol=0, atol=LARGEST_DIFFERENCE)
        np.testing.assert_array_equal(found.argmax(-1), self.logits.argmax(-1))

    def is_standard_onnx(self, folder: Path) -> Any:
        """The ONNX file has standard nodes, one input and output, and takes batches of any size.

        Returns its graph.
        """
        self.answers_alike("onnx", folder)
        graph = onnx.load(folder / "model.onnx").graph
        assert {node.domain for node in graph.node} <= {"", "ai.onnx"}
        (taken,), (answered,) = graph.input, graph.output
        assert (taken.name, answered.name) == ("windows", "logits")
        sizes = [size.dim_param or size.dim_value for size in taken.type.tensor_type.shape.dim]
        assert sizes == ["batch", *self.windows.shape[1:]]
        answers = self.opened("onnx", folder / "model.onnx")
        for size in (1, 2, 5):
            np.testing.assert_allclose(
                answers(self.windows[:size]), self.logits[:size], rtol=0, atol=LARGEST_DIFFERENCE
            )
        return graph


@cache
def case(name: str, channels: int = CHANNELS, scale: float = 3.0, **settings: Any) -> Case:
    """Let `scale` spread the parameters, so that cells grow beyond what a converter clips."""
    chosen = CONFIG.validate_python({"name": name, **SMALL.get(name, {}), **settings})
    network = build(chosen, window_steps=STEPS, channels=channels, classes=CLASSES)
    random = np.random.default_rng(0)
    mean = random.normal(size=channels)
    deviation = random.uniform(0.1, 0.5, channels)
    walks = random.normal(size=(6, STEPS, channels)).cumsum(1)
    standardization = Standardization(mean.astype(np.float32), deviation.astype(np.float32))
    windows = (walks / walks.std((0, 1)) * deviation + mean).astype(np.float32)
    standardized = (windows - standardization.mean) / standardization.deviation
    vector = network.initial(0) * np.float32(scale)
    vector = network.measured(vector, standardization.packed(), [standardized])
    model = StoredModel(network, vector, standardization, tuple("abcdefgh"[:CLASSES]))
    return Case(model, windows, np.asarray(traced(model)(windows)))
