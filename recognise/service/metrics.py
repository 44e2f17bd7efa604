"""What the service counts, under the names of the catalogue."""

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from cluster.metrics.catalogue import metric
from cluster.metrics.instruments import Identity, counter, family, gauge, histogram
from recognise.service.drift import Figures

IDENTITY = Identity("service", 0)


class ServiceMetrics:
    """The instruments of one service, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        at = IDENTITY.values
        self._requests = counter("service_requests_total", self.registry)
        self._seconds = histogram("service_request_seconds", self.registry).labels(*at)
        self._batch = histogram("service_batch_windows", self.registry).labels(*at)
        self._version = gauge("service_model_version", self.registry).labels(*at)
        self._takeovers = counter("service_takeovers_total", self.registry)
        self._shadow = counter("service_shadow_windows_total", self.registry)
        self._waiting = gauge("service_waiting_windows", self.registry).labels(*at)
        self._sessions = gauge("service_sessions", self.registry)
        self._session_windows = counter("service_session_windows_total", self.registry)
        self._session_seconds = histogram("service_session_seconds", self.registry).labels(*at)
        self._session_faults = counter("service_session_faults_total", self.registry)
        self._sessions_refused = counter("service_sessions_refused_total", self.registry)
        for made, short, label in (
            (self._requests, "service_requests_total", "code"),
            (self._takeovers, "service_takeovers_total", "result"),
            (self._shadow, "service_shadow_windows_total", "result"),
            (self._sessions, "service_sessions", "kind"),
            (self._session_windows, "service_session_windows_total", "kind"),
            (self._session_faults, "service_session_faults_total", "kind"),
            (self._sessions_refused, "service_sessions_refused_total", "code"),
        ):
            for value in metric(short).labels[label]:  # a rate counts the first one only from a zero on
                made.labels(*at, value)

    def answered(self, code: int, seconds: float | None) -> None:
        """One request was answered with this status; `seconds` where it was an inference."""
        self._requests.labels(*IDENTITY.values, str(code)).inc()
        if seconds is not None:
            self._seconds.observe(seconds)

    def batch(self, windows: int) -> None:
        """One batch was computed."""
        self._batch.observe(windows)

    def shadowed(self, result: str, windows: int) -> None:
        """So many windows of a version in the shadow came to this."""
        self._shadow.labels(*IDENTITY.values, result).inc(windows)

    def version(self, number: int) -> None:
        """This version is served now."""
        self._version.set(number)

    def taken_over(self, result: str) -> None:
        """A new version was `taken` or `refused`."""
        self._takeovers.labels(*IDENTITY.values, result).inc()

    def waiting(self, windows: Callable[[], float]) -> None:
        """Where the number of waiting windows comes from."""
        self._waiting.set_function(windows)

    def drift(self, figures: Callable[[], Mapping[int, Figures]]) -> None:
        """Where the drift by version comes from."""
        self.registry.register(_Drift(figures))

    def session(self, kind: str, more: int) -> None:
        """A session of this kind began (1) or ended (-1)."""
        self._sessions.labels(*IDENTITY.values, kind).inc(more)

    def session_window(self, kind: str, seconds: float) -> None:
        """A window of a session was answered so long after its last reading came."""
        self._session_windows.labels(*IDENTITY.values, kind).inc()
        self._session_seconds.observe(seconds)

    def session_fault(self, fault: str) -> None:
        """Something is wrong with the readings of a session."""
        self._session_faults.labels(*IDENTITY.values, fault).inc()

    def session_refused(self, code: int) -> None:
        """A session was closed with this code and the reason."""
        self._sessions_refused.labels(*IDENTITY.values, str(code)).inc()

    def exposition(self, accepted: str) -> tuple[bytes, str]:
        """The text of `/metrics` in the format that the header Accept prefers, and its content type."""
        encode, content_type = choose_encoder(accepted)
        return encode(self.registry), content_type


class _Drift(Collector):
    """The drift as it is at each scrape."""

    def __init__(self, figures: Callable[[], Mapping[int, Figures]]) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        """Nothing of a version that has answered too few windows lately."""
        low, distance = family("service_low_confidence_ratio"), family("service_input_distance_ratio")
        for number, found in self._figures().items():
            at = [*IDENTITY.values, str(number)]
            low.add_metric(at, found.low_confidence)
            for channel, value in found.distance.items():
                distance.add_metric([*at, channel], value)
        yield from (low, distance)
