"""What every network's export is: from standardized windows to logits, in the words of a writer."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from cluster.export.writer import Cell, Floats, Tensor, Writer
from cluster.models.instance_norm import STILL
from cluster.registry import Registry


@dataclass(frozen=True, eq=False)
class Layers:
    """The layers of `cluster.models.layers`, written with the parameters of their names."""

    write: Writer
    parameters: Mapping[str, Floats]

    def dense(self, name: str, inputs: Tensor) -> Tensor:
        """A `Dense`."""
        return self.write.dense(inputs, self.parameters[f"{name}/kernel"], self.parameters[f"{name}/bias"])

    def dense_relu(self, name: str, inputs: Tensor) -> Tensor:
        """A `Dense`, then ReLU."""
        return self.write.own("relu", self.dense(name, inputs))

    def lstm(self, name: str, inputs: Tensor, *, backward: bool = False) -> Tensor:
        """A `Lstm`."""
        return self.write.lstm(inputs, [self._cell(name, backward)])

    def bidirectional(self, name: str, inputs: Tensor) -> Tensor:
        """A `BidirectionalLstm`."""
        return self.write.lstm(inputs, [self._cell(f"{name}/forward", False), self._cell(f"{name}/backward", True)])

    def _cell(self, name: str, backward: bool) -> Cell:
        return Cell.of(self.parameters[f"{name}/kernel"], self.parameters[f"{name}/bias"], backward=backward)

    def layer_norm(self, name: str, inputs: Tensor, epsilon: float = 1e-5) -> Tensor:
        """A `LayerNorm`."""
        parameters = self.parameters
        return self.write.layer_norm(inputs, parameters[f"{name}/scale"], parameters[f"{name}/shift"], epsilon)

    def instance_norm(self, kind: str, windows: Tensor) -> Tensor:
        """An `InstanceNorm`."""
        if kind == "none":
            return windows
        write = self.write
        centred = write.each("subtract", windows, write.over("mean", windows, 1, kept=True))
        variance = write.over("mean", write.own("square", centred), 1, kept=True)
        own = write.each("divide", centred, write.own("sqrt", write.each("add", variance, STILL * STILL)))
        return own if kind == "replace" else write.joined([windows, own], 2)

    def at(self, sequence: Tensor, step: int, width: int) -> Tensor:
        """(batch, width): one step of a sequence of that many features."""
        return self.write.shaped(self.write.cut(sequence, 1, step, step + 1), [width])

    def ends(self, sequence: Tensor, steps: int, width: int, *, bidirectional: bool) -> Tensor:
        """(batch, width): where each direction ends, the halves of a bidirectional sequence at either end of it."""
        if not bidirectional:
            return self.at(sequence, steps - 1, width)
        half = width // 2
        ends = [self.write.cut(sequence, 2, 0, half), self.write.cut(sequence, 2, half, width)]
        return self.write.joined([self.at(ends[0], steps - 1, half), self.at(ends[1], 0, half)], 1)


class WrittenNetwork(ABC):
    """A network's export. Each states every fact itself."""

    name: ClassVar[str]

    @staticmethod
    @abstractmethod
    def logits(layers: Layers, network: Any, windows: Tensor) -> Tensor:
        """(batch, classes) from standardized windows (batch, steps, channels)."""


NETWORKS: Registry[WrittenNetwork] = Registry(
    "network with an export", "cluster.export.networks", WrittenNetwork  # type: ignore[type-abstract]
)  # fmt: skip
