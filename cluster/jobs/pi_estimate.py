"""What hits in the quarter circle say about pi."""

from math import pi, sqrt


def estimate_of(inside: int, samples: int) -> tuple[float, float]:
    """Estimate of pi and its standard error, 4 * sqrt(p (1 - p) / n) with the share p that was found inside.

    With nothing or everything inside, p is taken at the truth: an error of 0 would claim certainty.
    """
    share = inside / samples
    spread = share if 0.0 < share < 1.0 else pi / 4
    return 4.0 * share, 4.0 * sqrt(spread * (1.0 - spread) / samples)
