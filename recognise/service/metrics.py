"""What the service counts, under the names of the catalogue, and the drift of its versions.

Drift is how unsure a version is of recent windows, and how far they are from training. It looks at
the last `MOST_WINDOWS` windows of one version, none older than `LONGEST_SECONDS`.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import choose_encoder

from core.exported.description import Description
from core.metrics.catalogue import Identity, Reading, ReadingsCollector, metric, stored

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


IDENTITY = Identity("service", 0)


class Labelled:
    """An instrument with one label, each of whose values begins at zero."""

    def __init__(self, instrument: Counter | Gauge, short: str, label: str) -> None:
        self._instrument = instrument
        # A rate counts the first one only from a zero on.
        for value in metric(short).labels[label]:
            self(value, 0)

    def __call__(self, value: object, more: float = 1) -> None:
        """Count this many with this value of the label."""
        self._instrument.labels(*IDENTITY, str(value)).inc(more)


class ServiceMetrics:
    """The instruments of one service, in a registry of its own."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        at = IDENTITY

        def counted(short: str, label: str) -> Labelled:
            return Labelled(stored(Counter, short, registry), short, label)

        self._requests = counted("service_requests_total", "code")
        self._seconds = stored(Histogram, "service_request_seconds", registry).labels(*at)
        self.batch = stored(Histogram, "service_batch_windows", registry).labels(*at).observe
        """Count the windows of one batch."""
        self.version = stored(Gauge, "service_model_version", registry).labels(*at).set
        """Show the version that is served now."""
        self.taken_over = counted("service_takeovers_total", "result")
        """New versions that were `taken` or `refused`."""
        self.waiting = stored(Gauge, "service_waiting_windows", registry).labels(*at).set_function
        """Read the number of waiting windows from this function."""
        sessions = stored(Gauge, "service_sessions", registry)
        self.session = Labelled(sessions, "service_sessions", "kind")
        """Sessions of this kind that began (1) or ended (-1)."""
        self._session_windows = counted("service_session_windows_total", "kind")
        self._session_seconds = stored(Histogram, "service_session_seconds", registry).labels(*at)
        self.session_fault = counted("service_session_faults_total", "kind")
        """Faults in the readings of sessions."""
        self.session_refused = counted("service_sessions_refused_total", "code")
        """Sessions that were closed with this code and the reason."""

    def answered(self, code: int, seconds: float | None) -> None:
        """Count an answer with this status; `seconds` where it was an inference."""
        self._requests(code)
        if seconds is not None:
            self._seconds.observe(seconds)

    def drift(self, figures: Callable[[], Mapping[int, DriftFigures | None]]) -> None:
        """Read the drift by version from this function."""
        self.registry.register(ReadingsCollector(IDENTITY, lambda: _drift(figures())))

    def session_window(self, kind: str, seconds: float) -> None:
        """Count a window that was answered so long after its last reading came."""
        self._session_windows(kind)
        self._session_seconds.observe(seconds)

    def exposition(self, accepted: str) -> tuple[bytes, str]:
        """Return `/metrics` in the format that the header Accept prefers, and its content type."""
        encode, content_type = choose_encoder(accepted)
        return encode(self.registry), content_type


def _drift(figures_of: Mapping[int, DriftFigures | None]) -> Iterator[Reading]:
    """Yield the drift of each version that has answered enough windows lately."""
    for number, figures in figures_of.items():
        if figures is not None:
            yield Reading("service_low_confidence_ratio", figures.low_confidence, (number,))
            for channel, value in figures.distance.items():
                yield Reading("service_input_distance_ratio", value, (number, channel))
