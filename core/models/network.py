"""What every network is: named parameters, initial values, a pure function of both."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias

from core.ground.lazy import np, tf
from core.inventory.extensions import MODELS, ModelFacts
from core.inventory.fields import Choice
from core.models.objective import Objective
from core.models.operations import Operations, Tensor
from core.models.tasks import Classification
from core.models.tensorflow_operations import TensorFlowOperations
from core.parameters import Layout, ParameterSpec, Vector

if TYPE_CHECKING:
    from numpy.typing import NDArray

Values: TypeAlias = "NDArray[np.float64]"

Initializer: TypeAlias = "Callable[[Draws, tuple[int, ...]], Values]"
"""Makes the initial values of one parameter of a given shape."""


class Draws:
    """The independent random stream of one parameter: Philox keyed by (seed, its position).

    Initial values are the same bits on every machine. Only Philox's raw 64-bit words, sums,
    products, divisions and square roots in float64 are used, all of them exactly rounded by IEEE
    754 and in a fixed order: no libm, no BLAS, no LAPACK, whose last bits differ between a Pi and a
    PC.
    """

    def __init__(self, seed: int, position: int) -> None:
        self._bits = np.random.Philox(key=np.array([seed % 2**64, position], dtype=np.uint64))

    def uniform(self, shape: tuple[int, ...]) -> Values:
        """Uniform on [0, 1): the top 53 bits of each word, exactly."""
        random_words = self._bits.random_raw(math.prod(shape))
        return ((random_words >> np.uint64(11)).astype(np.float64) * 2.0**-53).reshape(shape)

    def gaussian(self, shape: tuple[int, ...]) -> Values:
        """Draw with mean 0 and variance 1: twelve uniforms summed, minus six (Irwin-Hall).

        A logarithm is not portable.
        """
        total: Values = np.add.reduce(self.uniform((12, *shape)), axis=0)
        return total - 6.0


def constant(value: float) -> Initializer:
    """Every element `value`."""
    return lambda draws, shape: np.full(shape, value)


def glorot_uniform(draws: Draws, shape: tuple[int, ...]) -> Values:
    """Uniform within sqrt(6 / (fan in + fan out)) of zero (Glorot and Bengio 2010, eq. 16).

    The last two axes are (inputs, outputs); axes before them (a convolution's taps) multiply both
    fans, as in Keras.
    """
    taps = math.prod(shape[:-2])
    limit = math.sqrt(6.0 / (taps * (shape[-2] + shape[-1])))
    return (draws.uniform(shape) * 2.0 - 1.0) * limit


def orthogonal_rows(draws: Draws, shape: tuple[int, ...]) -> Values:
    """Draw orthonormal rows (rows, columns), rows <= columns.

    Modified Gram-Schmidt makes them of Gaussian draws.
    """
    rows = draws.gaussian(shape)
    for k in range(shape[0]):
        rows[k] /= math.sqrt(float(np.add.reduce(rows[k] * rows[k])))
        overlap = np.add.reduce(rows[k + 1 :] * rows[k], axis=1)
        rows[k + 1 :] -= overlap[:, None] * rows[k]
    return rows


def lstm_kernel(draws: Draws, shape: tuple[int, ...]) -> Values:
    """Draw as Keras's LSTM: Glorot for the input's rows, orthogonal for the state's.

    The shape is (features + hidden, 4 * hidden).
    """
    hidden = shape[1] // 4
    inputs = glorot_uniform(draws, (shape[0] - hidden, shape[1]))
    return np.concatenate([inputs, orthogonal_rows(draws, (hidden, shape[1]))])


def lstm_bias(draws: Draws, shape: tuple[int, ...]) -> Values:
    """Make ones for the forget gate, so that a new cell remembers, zeros elsewhere.

    It follows Jozefowicz et al. 2015.
    """
    hidden = shape[0] // 4
    bias = np.zeros(shape)
    bias[hidden : 2 * hidden] = 1.0
    return bias


Tensors = Mapping[str, tf.Tensor]


@dataclass(frozen=True)
class Parameter(ParameterSpec):
    """A named tensor of a network and how it starts."""

    initial: Initializer = field(kw_only=True, compare=False)


class Parametrized(Protocol):
    """Anything a network is put together from."""

    def parameters(self) -> list[Parameter]:
        """The part's parameters, in the order they have in the flat vector."""


@dataclass(frozen=True)
class Problem:
    """What a network is for: examples of `input_shape` and how many numbers answer each.

    The built-in networks take windows, (steps, channels), and answer with a number for each
    activity. `keep_probability` is the share of units their dropout keeps in training; 1 drops
    none. `vectors` are the first channels of x, y and z of each sensor; None where nothing says
    them, and then all channels are taken for such, if their number divides by three.
    """

    input_shape: tuple[int, ...]
    outputs: int
    keep_probability: float = 1.0
    input_dtype: str = "float32"
    vectors: tuple[int, ...] | None = None

    @property
    def window_steps(self) -> int:
        """Samples of a window."""
        return self.input_shape[0]

    @property
    def channels(self) -> int:
        """Values of a sample."""
        return self.input_shape[-1]

    @property
    def sensors(self) -> tuple[int, ...]:
        """The first channels of x, y and z of each sensor; empty without any."""
        if self.vectors is not None:
            return self.vectors
        if self.channels % 3 == 0:
            return tuple(range(0, self.channels, 3))
        return ()

    @property
    def classes(self) -> int:
        """Activities to choose from."""
        return self.outputs


@dataclass(frozen=True)
class ForwardPass:
    """What a network says about a batch.

    `logits` has shape (batch, classes), or whatever the task asks for. `statistics` holds by name,
    for each untrained parameter, what this batch measured (empty outside training); the owner of
    the vector averages it into the running value. `penalty` is what the network adds to the mean
    loss (regularization), a scalar.
    """

    logits: tf.Tensor
    statistics: dict[str, tf.Tensor] = field(default_factory=dict)
    penalty: tf.Tensor | None = None


class Network(ABC):
    """A network without state: it remembers nothing between calls."""

    layout: Layout
    problem: Problem
    objective: Objective
    """Loss and figures of its answers."""

    knows_batch: ClassVar[bool] = False
    """Whether it is traced for the size of a slot where all have one size.

    Gradients of products then need no sums over axes that might have been broadcast, ten at each
    step of a loop. The built-in networks do without: a known size also turns divisions into
    products, which have other last bits.
    """

    has_library_layers: bool = False
    """Whether TensorFlow's graph of it has operations of the native library."""

    @abstractmethod
    def initial(self, seed: int) -> Vector:
        """Return the float32 vector (layout.size,) to start from; equal seeds give equal bits."""

    def measured(self, vector: Vector, standardization: Any, windows: Iterable[Any]) -> Vector:
        """Return `vector` with what the network measures of its training windows.

        Most measure nothing.

        `standardization`, float32 (2, channels), is the mean and deviation that the windows, in
        blocks of shape (n, steps, channels), were standardized with.
        """
        del standardization, windows
        return vector

    def unpack(self, flat: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the named tensors in a flat vector (layout.size,), differentiable by that."""
        pieces = tf.split(flat, [slot.spec.size for slot in self.layout.slots])
        return {
            slot.spec.name: tf.reshape(piece, slot.spec.shape)
            for slot, piece in zip(self.layout.slots, pieces, strict=True)
        }

    @abstractmethod
    def apply(
        self, parameters: Tensors, windows: tf.Tensor, *, training: bool, seed: tf.Tensor
    ) -> ForwardPass:
        """Answers for a batch of examples, (batch, *input_shape); windows come standardized.

        `seed`, int32 of shape (2,), decides the dropout masks and nothing else; equal seeds drop
        equal elements.
        """

    def augmented(
        self, inputs: tf.Tensor, targets: tf.Tensor, seed: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """A training batch as the network wants to see it; the built-in ones take it as it is."""
        del seed
        return inputs, targets

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return the `model` entry of `result.json`: every knob, and the counts of values."""


class BuiltIn(Network, ModelFacts):
    """A network of this folder, made of parts; the job's section `model` configures it."""

    def __init__(self, config: Choice, problem: Problem, layers: Sequence[Parametrized]) -> None:
        self.config = config
        self.problem = problem
        self.objective = Classification(problem.outputs)
        parameters = [parameter for layer in layers for parameter in layer.parameters()]
        self.layout = Layout(parameters)
        self._initializers = {parameter.name: parameter.initial for parameter in parameters}

    def initial(self, seed: int) -> Vector:
        """Draw each parameter; the bits are equal on every machine."""
        specs = [slot.spec for slot in self.layout.slots]
        return self.layout.pack(
            {
                spec.name: self._initializers[spec.name](Draws(seed, k), spec.shape)
                for k, spec in enumerate(specs)
            }
        )

    @property
    def measuring(self) -> Any:
        """Its part that follows from the windows alone, if it has one.

        See `spectral.MeasuringForLayers`.
        """
        return None

    @abstractmethod
    def logits(self, ops: Operations, windows: Tensor) -> Tensor:
        """Return (batch, classes) for standardized windows (batch, steps, channels)."""

    def apply(
        self, parameters: Tensors, windows: tf.Tensor, *, training: bool, seed: tf.Tensor
    ) -> ForwardPass:
        """Compute the logits.

        Training hands the untrained parameters back too, as measured or else as they are.
        """
        ops = TensorFlowOperations(parameters, training=training, seed=seed)
        logits = self.logits(ops, windows)
        if not training:
            return ForwardPass(logits)
        untrained = [slot.spec.name for slot in self.layout.slots if not slot.spec.trained]
        measured = {name: ops.statistics.get(name, parameters[name]) for name in untrained}
        return ForwardPass(logits, measured)

    def describe(self) -> dict[str, object]:
        """Return the options, and how many values are trained and averaged."""
        return {
            **self.config.model_dump(),
            "parameters": self.layout.trained_size,
            "statistics": self.layout.statistics_size,
            "window_steps": self.problem.window_steps,
            "channels": self.problem.channels,
            "classes": self.problem.classes,
        }


def build(
    config: Choice,
    *,
    window_steps: int,
    channels: int,
    classes: int,
    keep_probability: float = 1.0,
    vectors: tuple[int, ...] | None = None,
) -> BuiltIn:
    """Return the network of a job's section `model`, for windows (window_steps, channels).

    `keep_probability` is the share of units its dropout keeps in training; `vectors` is what
    `Problem` has. Every valid `config` can be built.
    """
    shape = (window_steps, channels)
    problem = Problem(shape, classes, keep_probability, vectors=vectors)
    network: BuiltIn = MODELS[config.name](config, problem)  # type: ignore[call-arg, assignment]
    return network
