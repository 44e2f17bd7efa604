"""What an export writes a network with: the operations of `core.models`, without training.

The first axis of a tensor is the batch, a sequence is (batch, steps, features), and parameters are
NumPy's arrays.
"""

from abc import abstractmethod
from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import TYPE_CHECKING

from cluster.export.graph import INPUT
from core.ground.lazy import np
from core.models.network import BuiltIn
from core.models.operations import Array, Operations, Tensor

if TYPE_CHECKING:
    from cluster.jobs.train_result import StoredModel

STEPS = 1


class Writer(Operations):
    """Writes one built-in network; each call adds to it and returns what it answers."""

    windows: Tensor
    """The model's input, raw windows (batch, steps, channels)."""

    def __init__(self, model: "StoredModel") -> None:
        network = model.network
        assert isinstance(network, BuiltIn)
        super().__init__(network.layout.unpack(model.vector))
        self._network = network
        self._standardization = model.standardization
        self.windows = self.input(INPUT, *network.problem.input_shape)

    @abstractmethod
    def input(self, name: str, steps: int, channels: int) -> Tensor:
        """Return the model's input."""

    def logits(self) -> Tensor:
        """Return the answers of the network to raw windows."""
        standardization = self._standardization
        windows = (self.windows - standardization.mean) / standardization.deviation
        return self._network.logits(self, windows)

    def sequence(self, windows: Tensor) -> Tensor:
        """Return the windows: a sequence is batch-major here."""
        return windows

    def averaged(self, sequence: Tensor) -> Tensor:
        """Reduce over the steps."""
        return self.reduce("mean", sequence, STEPS)

    def window_norm(self, windows: Tensor, epsilon: float) -> Tensor:
        """Write the normalization of each window with plain operations."""
        centred = windows - self.reduce("mean", windows, STEPS, keep_axis=True)
        variance = self.reduce("mean", self.unary("square", centred), STEPS, keep_axis=True)
        return centred / self.unary("sqrt", variance + epsilon)

    def step_norm(self, name: str, sequence: Tensor, epsilon: float) -> Tensor:
        """Normalize with the running statistics."""
        parameters = self.parameters
        variance = parameters[f"{name}/variance"].astype(np.float64)
        factor = (parameters[f"{name}/scale"] / np.sqrt(variance + epsilon)).astype(np.float32)
        centred = sequence - _by_step(parameters[f"{name}/mean"])
        return centred * _by_step(factor) + parameters[f"{name}/shift"]

    def dropout(self, inputs: Tensor, keep_probability: float, site: int) -> Tensor:
        """Drop nothing: an export does not train."""
        return inputs

    def without_gradient(self, inputs: Tensor) -> Tensor:
        """Return the inputs: an export has no gradient."""
        return inputs

    def add_n(self, tensors: Sequence[Tensor]) -> Tensor:
        """Add one after the other."""
        return reduce(add, tensors)


def _by_step(values: Array) -> Array:
    return values[None, :, None]
