"""Invented readings for the tests of the stream."""

from dataclasses import dataclass
from itertools import cycle

import numpy as np
from numpy.typing import NDArray

from recognise.stream import InputFault, Settings, Stream, Window

Numbers = NDArray[np.float64]
Found = list[Window | InputFault]


@dataclass(frozen=True)
class Readings:
    """times: seconds, (n,); acceleration in g and rotation in rad/s, (n, 3)."""

    times: Numbers
    acceleration: Numbers
    rotation: Numbers

    @property
    def values(self) -> Numbers:
        """All numbers but the times, (n, 6)."""
        return np.hstack([self.acceleration, self.rotation])

    def rows(self, rows: slice | NDArray[np.intp]) -> "Readings":
        return Readings(self.times[rows], self.acceleration[rows], self.rotation[rows])

    def scaled(self, part: str, factor: float) -> "Readings":
        """One part, such as `rotation`, times a factor."""
        return Readings(**{**vars(self), part: factor * vars(self)[part]})

    def __len__(self) -> int:
        return len(self.times)


def walk(count: int, *, seed: int = 0, hz: float = 50.0, begin: float = 0.0) -> Readings:
    """Gravity, a stride of 2 Hz and noise."""
    random = np.random.default_rng(seed)
    times = begin + np.arange(count) / hz
    stride = np.sin(2 * np.pi * 2.0 * (times - begin))[:, np.newaxis] * [0.3, 0.1, 0.2]
    acceleration = np.array([0.0, 0.0, 1.0]) + stride + random.normal(0, 0.05, (count, 3))
    return Readings(times, acceleration, random.normal(0, 0.5, (count, 3)))


def heard(settings: Settings, readings: Readings, sizes: list[int]) -> Found:
    """Windows and faults of a fresh stream that gets chunks of these sizes, again and again."""
    stream = Stream(settings)
    start = 0
    found: Found = []
    for size in cycle(sizes):
        chunk = readings.rows(slice(start, start + size))
        if not len(chunk):
            return found
        found += stream.push_values(chunk.times, chunk.values)
        start += size
    return found


def windows_of(found: Found) -> list[Window]:
    return [item for item in found if isinstance(item, Window)]


def faults_of(found: Found) -> list[InputFault]:
    return [item for item in found if isinstance(item, InputFault)]


def same(left: Found, right: Found) -> bool:
    """Whether both are equal, windows to the bit."""
    return [_comparable(item) for item in left] == [_comparable(item) for item in right]


def _comparable(item: Window | InputFault) -> object:
    if isinstance(item, InputFault):
        return item
    return item.at, item.centre, item.begins, item.channels.tobytes()


def kinds(found: Found) -> list[str]:
    """What each is: `window`, or the kind of the fault."""
    return [item.kind if isinstance(item, InputFault) else "window" for item in found]
