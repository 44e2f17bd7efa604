"""What every network is: named parameters, their initial values, and a pure function of them and some windows."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from cluster.inventory.extensions import MODELS, ModelFacts
from cluster.inventory.fields import Choice
from cluster.lazy import tf
from cluster.models.initial import Draws, Initializer
from cluster.parameters.layout import Layout, ParameterSpec, Vector

Tensors = Mapping[str, tf.Tensor]


@dataclass(frozen=True)
class Parameter:
    """A named tensor of a network and how it starts."""

    spec: ParameterSpec
    initial: Initializer


class Part(Protocol):
    """Anything a network is put together from."""

    def parameters(self) -> list[Parameter]:
        """The part's parameters, in the order they have in the flat vector."""


@dataclass(frozen=True)
class Problem:
    """What a network is for: windows of shape (window_steps, channels), each of one of `classes` activities.

    `keep_probability` is the share of units its dropout keeps in training; 1 drops none.
    """

    window_steps: int
    channels: int
    classes: int
    keep_probability: float = 1.0


@dataclass(frozen=True)
class Output:
    """What a network says about a batch.

    `logits` has shape (batch, classes). `statistics` holds by name, for each untrained parameter, what this batch
    measured (empty outside training); the owner of the vector averages it into the running value.
    """

    logits: tf.Tensor
    statistics: dict[str, tf.Tensor] = field(default_factory=dict)


class Network(ModelFacts, ABC):
    """A network without state: parameters come in, logits go out, and nothing is remembered between calls."""

    def __init__(self, config: Choice, problem: Problem, parts: Sequence[Part]) -> None:
        self.config = config
        self.problem = problem
        parameters = [parameter for part in parts for parameter in part.parameters()]
        self.layout = Layout([parameter.spec for parameter in parameters])
        self._initializers = {parameter.spec.name: parameter.initial for parameter in parameters}

    def initial(self, seed: int) -> Vector:
        """The flat float32 vector of shape (layout.size,) to start from; equal seeds give equal bits anywhere."""
        values = {}
        for position, slot in enumerate(self.layout.slots):
            draws = Draws(seed, position)
            values[slot.spec.name] = self._initializers[slot.spec.name](draws, slot.spec.shape)
        return self.layout.pack(values)

    def unpack(self, flat: tf.Tensor) -> dict[str, tf.Tensor]:
        """The named tensors in a flat vector of shape (layout.size,), differentiable with respect to it."""
        parts = tf.split(flat, [slot.spec.size for slot in self.layout.slots])
        return {
            slot.spec.name: tf.reshape(part, slot.spec.shape)
            for slot, part in zip(self.layout.slots, parts, strict=True)
        }

    @abstractmethod
    def apply(self, parameters: Tensors, windows: tf.Tensor, *, training: bool, seed: tf.Tensor) -> Output:
        """Logits for standardized windows of shape (batch, window_steps, channels).

        `seed`, int32 of shape (2,), decides the dropout masks and nothing else; equal seeds drop equal elements.
        """

    def describe(self) -> dict[str, object]:
        """The `model` entry of `result.json`: every knob, and how many values are trained and averaged."""
        return {
            **self.config.model_dump(),
            "parameters": self.layout.trained_size,
            "statistics": self.layout.statistics_size,
            "window_steps": self.problem.window_steps,
            "channels": self.problem.channels,
            "classes": self.problem.classes,
        }


def build(config: Choice, *, window_steps: int, channels: int, classes: int, keep_probability: float = 1.0) -> Network:
    """The network of a job's section `model`, for windows of shape (window_steps, channels).

    `keep_probability` is the share of units its dropout keeps in training. Every valid `config` can be built.
    """
    network: Network = MODELS[config.name](config, Problem(window_steps, channels, classes, keep_probability))  # type: ignore[call-arg, assignment]
    return network
