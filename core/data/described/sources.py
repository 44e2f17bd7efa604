"""Whether readings are of one source: device, sensor or clock."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from core.data.recordings import is_number

Numbers = NDArray[np.float64]

MOST_SOURCES = 16
LEAST_ROWS = 16
MOSTLY = 0.5
"""The share of rows at which words change that say a source."""
SOMETIMES = 0.05
"""The share of such rows where values jump with the word: no label changes so often."""
JUMP = 1.5
"""The factor by which values of two sources are farther apart than those of one that follow."""
PERIODIC = 0.9
DOUBLED = 0.05
"""The share of readings that may have the time of the one before, and other values."""
LONG = 2.0
"""Factor of the usual step from which it is a pause."""


def says_source(cells: Sequence[str], values: Numbers) -> bool:
    """Whether a column says of which source each reading is; values are (n, channels).

    It has few words that change from row to row. Numbers may count, so that theirs have an order,
    and the values of one follow each other more closely.
    """
    if len(cells) < LEAST_ROWS or not 2 <= len({*cells}) <= MOST_SOURCES or "" in cells:
        return False
    names, codes = np.unique(np.array(cells), return_inverse=True)
    changes = np.diff(codes) != 0
    share = float(changes.mean())
    if share < SOMETIMES:
        return False
    are_numbers = all(map(is_number, names))
    if not values.size:
        return share >= MOSTLY and not are_numbers
    steps_of_sources = [
        np.abs(np.diff(values[codes == code], axis=0)) for code in range(len(names))
    ]
    within = float(np.concatenate(steps_of_sources).mean())
    jump = float(np.abs(np.diff(values, axis=0))[changes].mean())
    if are_numbers:
        period = codes[len(names) :] == codes[: -len(names)]
        return float(period.mean()) >= PERIODIC and jump > JUMP * within
    return share >= MOSTLY or jump > 2 * JUMP * within


def doubled(times: Numbers, values: Numbers) -> int:
    """Return how many readings have the time of the one before, and other values."""
    return int(((np.diff(times) == 0) & (np.diff(values, axis=0) != 0).any(axis=1)).sum())


def spread(times: Numbers) -> Numbers:
    """Return times of which those that are equal lie evenly up to the next one, or to a pause."""
    starts = np.flatnonzero(np.diff(times, prepend=np.nan) != 0)
    if len(starts) < 2:
        return times
    steps = np.diff(times[starts])
    usual = float(np.median(steps[steps > 0])) if (steps > 0).any() else 0.0
    steps = np.append(np.where((steps > 0) & (steps <= LONG * usual), steps, usual), usual)
    counts = np.diff(np.append(starts, len(times)))
    place = np.arange(len(times)) - np.repeat(starts, counts)
    even_times: Numbers = times + place * np.repeat(steps / counts, counts)
    return even_times
