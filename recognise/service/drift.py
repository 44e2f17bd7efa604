"""The drift of one version: how unsure it is of recent windows, how far they are from training.

Both look at the last `MOST_WINDOWS` windows of one version, none older than `LONGEST_SECONDS`.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.exported.description import Description

MOST_WINDOWS = 1000
LONGEST_SECONDS = 600.0
LEAST_WINDOWS = 100
"""The fewest that give a figure: one person who sits down is no drift."""
CLIPPED_AT = 20.0
"""Deviations at which a standardized sample is cut off, so that one damaged window among a hundred
raises no alarm."""
MOST_CHANNELS = 64
"""Channels that are measured, the first ones: each is a series for Prometheus."""
_LEAST_DEVIATION = 1e-30
"""The smallest deviation: one over a smaller one is no float32."""

Floats = NDArray[np.float32]
Clock = Callable[[], float]
Compute = Callable[[Floats], Floats]


def least_confidence(classes: int) -> float:
    """Return the probability of its class below which an answer counts as unsure.

    It lies halfway from guessing to certainty. The greatest probability of the softmax measures the
    confidence: Hendrycks and Gimpel, "A Baseline for Detecting Misclassified and
    Out-of-Distribution Examples in Neural Networks", ICLR 2017.
    """
    return (1 / classes + 1) / 2


@dataclass(frozen=True)
class DriftFigures:
    """The figures of one version's recent windows."""

    windows: int
    low_confidence: float
    """Share of the windows."""
    distance: Mapping[str, float]
    """Deviations of the training, by channel."""


class Recent:
    """The last windows that one version answered. Threads of the pool add to it."""

    def __init__(self, description: Description, clock: Clock = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._least = least_confidence(description.output.classes)
        self.channels = _measured(description)
        moments = description.standardization
        self._mean = np.array(moments.mean[: len(self.channels)], np.float32)
        deviation = np.maximum(moments.std[: len(self.channels)], _LEAST_DEVIATION)
        self._scale = (1 / deviation).astype(np.float32)
        self._average = np.full(
            description.input.shape[0], 1 / description.input.shape[0], np.float32
        )
        self._next = 0
        self._since = np.full(MOST_WINDOWS, -np.inf)
        self._unsure = np.zeros(MOST_WINDOWS, bool)
        self._first, self._second = np.zeros((2, MOST_WINDOWS, len(self.channels)))
        """Mean and mean square of each window's standardized samples, by channel."""

    def add(self, windows: Floats, logits: Floats) -> None:
        """Add windows (n, samples, channels) with their logits (n, classes).

        A window without a finite answer does not count.
        """
        windows = windows[-MOST_WINDOWS:]
        logits = logits[-MOST_WINDOWS:]
        with np.errstate(
            over="ignore", invalid="ignore"
        ):  # huge numbers become infinite, and are cut off
            standardized = windows[..., : len(self.channels)] - self._mean
            standardized *= self._scale
            np.minimum(
                np.maximum(standardized, -CLIPPED_AT, out=standardized),
                CLIPPED_AT,
                out=standardized,
            )
            first = self._average @ standardized
            second = self._average @ np.square(standardized, out=standardized)
            raised = np.exp(logits - logits.max(axis=1, keepdims=True)).sum(axis=1)
            unsure = raised > 1 / self._least  # the greatest probability is one of so many
        answered = np.isfinite(logits).all(axis=1) & np.isfinite(first).all(axis=1)
        count = int(np.count_nonzero(answered))
        with self._lock:
            places = np.arange(self._next, self._next + count) % MOST_WINDOWS
            self._next = (self._next + count) % MOST_WINDOWS
            self._since[places] = self._clock()
            self._unsure[places] = unsure[answered]
            self._first[places] = first[answered]
            self._second[places] = second[answered]

    def watched(self, compute: Compute) -> Compute:
        """Return `compute` of this version, which also adds its windows here."""

        def watching(windows: Floats) -> Floats:
            logits = compute(windows)
            self.add(windows, logits)
            return logits

        return watching

    def figures(self) -> DriftFigures | None:
        """Return the figures now, or None while there are fewer than `LEAST_WINDOWS`.

        The distance of a channel is the 2-Wasserstein distance between the normal distributions
        with the moments of these windows and of the training, sqrt((m1 - m2)^2 + (s1 - s2)^2), in
        units of the training's deviation; no two distributions with these moments are closer
        (Dowson and Landau, "The Frechet distance between multivariate normal distributions", 1982;
        Gelbrich, "On a formula for the L2 Wasserstein metric", 1990). It needs no more of the
        training than the mean and the deviation in the export, and is finite for a constant signal.
        """
        with self._lock:
            lately = self._since >= self._clock() - LONGEST_SECONDS
            count = int(np.count_nonzero(lately))
            if count < LEAST_WINDOWS:
                return None
            low = float(self._unsure[lately].mean())
            mean = self._first[lately].mean(axis=0)
            square = self._second[lately].mean(axis=0)
        spread = np.sqrt(np.maximum(square - mean**2, 0))
        distance = np.hypot(mean, spread - 1)
        return DriftFigures(count, low, dict(zip(self.channels, map(float, distance), strict=True)))


def _measured(description: Description) -> tuple[str, ...]:
    """Return the channels with a known mean and deviation.

    Channels without names of their own are numbered.
    """
    names = description.input.channels
    count = description.input.shape[-1]
    if len(description.standardization.mean) != count:
        return ()
    if len(set(names)) != count:
        names = tuple(map(str, range(count)))
    return names[:MOST_CHANNELS]
