"""What float32, in which all is trained, cannot hold."""

import numpy as np

MOST_LOST = 256
"""Steps of float32 that numbers have to span, or rounding is what is left of them."""
REMEDY = "differ by less than float32 numbers of that size can: subtract the least from all"


def is_lost(least: float, most: float) -> bool:
    """Return whether the differences between numbers from `least` to `most` are lost."""
    with np.errstate(over="ignore", invalid="ignore"):
        step = float(np.spacing(np.float32(max(abs(least), abs(most)))))
    return 0 < most - least < MOST_LOST * step
