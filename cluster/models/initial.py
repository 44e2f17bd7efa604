"""Initial parameter values that are the same bits on every machine.

Only Philox's raw 64-bit words, sums, products, divisions and square roots in float64 are used, all of them exactly
rounded by IEEE 754 and in a fixed order: no libm, no BLAS, no LAPACK, whose last bits differ between a Pi and a PC.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from cluster.lazy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Values = NDArray[np.float64]
else:
    Values = Any

Initializer: TypeAlias = "Callable[[Draws, tuple[int, ...]], Values]"
"""Makes the initial values of one parameter of a given shape."""

_MASK = 2**64 - 1


class Draws:
    """The independent random stream of one parameter: Philox keyed by (seed, position of the parameter)."""

    def __init__(self, seed: int, position: int) -> None:
        key = np.array([seed & _MASK, position], dtype=np.uint64)
        self._bits = np.random.Philox(key=key)

    def uniform(self, shape: tuple[int, ...]) -> Values:
        """Uniform on [0, 1): the top 53 bits of each word, exactly."""
        words = self._bits.random_raw(math.prod(shape))
        return ((words >> np.uint64(11)).astype(np.float64) * 2.0**-53).reshape(shape)

    def gaussian(self, shape: tuple[int, ...]) -> Values:
        """Mean 0, variance 1: twelve uniforms summed, minus six (Irwin-Hall), because a logarithm is not portable."""
        total: Values = np.add.reduce(self.uniform((12, *shape)), axis=0)
        return total - 6.0


def constant(value: float) -> Initializer:
    """Every element `value`."""
    return lambda draws, shape: np.full(shape, value)


def glorot_uniform(draws: Draws, shape: tuple[int, ...]) -> Values:
    """Uniform within sqrt(6 / (fan in + fan out)) of zero (Glorot and Bengio 2010, eq. 16).

    The last two axes are (inputs, outputs); axes before them (a convolution's taps) multiply both fans, as in Keras.
    """
    taps = math.prod(shape[:-2])
    limit = math.sqrt(6.0 / (taps * (shape[-2] + shape[-1])))
    return (draws.uniform(shape) * 2.0 - 1.0) * limit


def orthogonal_rows(draws: Draws, shape: tuple[int, ...]) -> Values:
    """Orthonormal rows, shape (rows, columns) with rows <= columns, by modified Gram-Schmidt on Gaussian draws."""
    rows = draws.gaussian(shape)
    for k in range(shape[0]):
        rows[k] /= math.sqrt(float(np.add.reduce(rows[k] * rows[k])))
        overlap = np.add.reduce(rows[k + 1 :] * rows[k], axis=1)
        rows[k + 1 :] -= overlap[:, None] * rows[k]
    return rows


def lstm_kernel(draws: Draws, shape: tuple[int, ...]) -> Values:
    """Keras's LSTM: Glorot for the input's rows, orthogonal for the state's; shape (features + hidden, 4 * hidden)."""
    hidden = shape[1] // 4
    inputs = glorot_uniform(draws, (shape[0] - hidden, shape[1]))
    return np.concatenate([inputs, orthogonal_rows(draws, (hidden, shape[1]))])


def lstm_bias(draws: Draws, shape: tuple[int, ...]) -> Values:
    """Ones for the forget gate, so that a new cell remembers, zeros elsewhere (Jozefowicz et al. 2015)."""
    hidden = shape[0] // 4
    bias = np.zeros(shape)
    bias[hidden : 2 * hidden] = 1.0
    return bias
