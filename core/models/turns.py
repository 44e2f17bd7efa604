"""Cosines and sines with the same bits on every processor: NumPy's and libm's are of a kind."""

from typing import Any

from core.ground.lazy import np

DEGREE = 18
"""The degree of the Taylor polynomials: an eighth of a turn is exact to float64's last bits."""


def cosines_and_sines(turns: Any) -> tuple[Any, Any]:
    """Return the cosines and the sines of whole `turns`, float64, a number or an array.

    Each step is one of IEEE's exactly rounded operations, in a fixed order.
    """
    quarter = np.rint(4.0 * turns)
    angle = (4.0 * turns - quarter) * (np.pi / 2.0)
    square = angle * angle
    cosine = _series(square, DEGREE)
    sine = angle * _series(square, DEGREE + 1)
    place = np.mod(quarter, 4.0).astype(np.int64)
    return (
        np.choose(place, [cosine, -sine, -cosine, sine]),
        np.choose(place, [sine, cosine, -sine, -cosine]),
    )


def _series(square: Any, degree: int) -> Any:
    """Return 1 - square / (2 * 1) * (1 - square / (4 * 3) * ...), or of 3 * 2, 5 * 4 and so on."""
    total = 1.0
    for n in range(degree, 1, -2):
        total = 1.0 - square / (n * (n - 1)) * total
    return total
