"""What the service counts, under the names of the catalogue."""

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import choose_encoder

from core.metrics.catalogue import Identity, Reading, ReadingsCollector, metric, stored
from recognise.service.drift import DriftFigures

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
