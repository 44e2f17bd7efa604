"""Recordings that can get no label: what is changed in a walk, and the words of the reason."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from tests.recognise.readings import Readings

Change = Callable[[Readings], Readings]


def scaled(part: str, factor: float) -> Change:
    return lambda day: day.scaled(part, factor)


def later(seconds: float, factor: float = 1.0) -> Change:
    return lambda day: replace(day, times=seconds + factor * day.times)


def first(count: int) -> Change:
    return lambda day: day.rows(slice(0, count))


WRONG: list[tuple[Change, str]] = [
    (scaled("times", 1e3), "milliseconds: divide them by 1,000"),
    (scaled("times", 1e6), "microseconds: divide them by 1,000,000"),
    (scaled("times", 1e9), "nanoseconds: divide them by 1,000,000,"),
    (later(1.7e12, 1e3), "milliseconds: divide them by 1,000"),
    (lambda day: replace(day, times=day.times // 1), "98% of the readings at the time of the one"),
    (lambda day: replace(day, times=day.times[::-1]), "times that do not rise"),
    (scaled("acceleration", 9.80665), "give --acceleration m/s2"),
    (scaled("acceleration", 0.0), "record with that sensor"),
    (scaled("rotation", 180 / np.pi), "give --rotation deg/s"),
    (scaled("rotation", 0.0), "no gyroscope"),
    (scaled("rotation", np.nan), "no finite number in gx, gy, gz: no gyroscope"),
    (scaled("times", 2.5), "got 20; record with a faster sensor"),
    (first(0), "got 0 readings of finite numbers"),
]
"""The reason is the same however the recording comes."""
WRONG_FILES: list[tuple[Change, str]] = [
    (scaled("times", 5.0), "got 10; record with a faster sensor"),
    (scaled("times", 1 / 60), "in seconds?"),
    (later(1.7e12), "got 1.7e+12"),
    (scaled("times", 0.0), "do not rise"),
    (scaled("acceleration", 1e3), "g or m/s2"),
    (
        lambda day: replace(day, acceleration=day.acceleration + 1e30),
        "inf g, expected",
    ),
    (scaled("acceleration", 0.1), "convert it to g or m/s2, gravity included"),
    (scaled("acceleration", np.nan), "number in ax, ay, az"),
]
"""The first look at a file finds these before any window is cut."""
