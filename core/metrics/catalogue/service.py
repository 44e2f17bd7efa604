"""The metrics of a service."""

from functools import partial

from core.metrics.catalogue.entry import Metric

_service_gauge = partial(Metric, kind="gauge", exporter="service")
_service_counter = partial(Metric, kind="counter", exporter="service")
_service_histogram = partial(Metric, kind="histogram", exporter="service")

CODES = (
    "101",
    "200",
    "400",
    "401",
    "403",
    "404",
    "405",
    "408",
    "413",
    "415",
    "421",
    "500",
    "503",
    "504",
)
LATENCY_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
BATCH_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
LATELY = "once a version has answered a hundred windows within ten minutes"
SESSIONS = ("stream", "sensor_logger")
FAULTS = ("bad_value", "doubled", "late", "gap", "clock_jump", "sparse", "implausible")
CLOSES = ("1007", "1008", "1009", "1011", "1013")

SERVICE = (
    _service_counter(
        "service_requests_total", labels={"code": CODES}, help="Requests answered, by HTTP status"
    ),
    _service_histogram(
        "service_request_seconds",
        buckets=LATENCY_BUCKETS,
        help=(
            "Time of a request for an inference, from its head to its answer, refused ones included"
        ),
    ),
    _service_histogram(
        "service_batch_windows",
        buckets=BATCH_BUCKETS,
        help="Windows of one batch; a larger request is one by itself",
    ),
    _service_gauge("service_waiting_windows", help="Windows that no thread computes yet"),
    _service_gauge("service_model_version", help="Number of the version that is served"),
    _service_counter(
        "service_takeovers_total",
        labels={"result": ("taken", "refused", "taken_back")},
        help=(
            "Promotions and rollbacks that this service took over, refused, or took back because"
            " the version ended twice"
        ),
    ),
    _service_gauge(
        "service_low_confidence_ratio",
        labels={"version": ()},
        where=LATELY,
        help=(
            "Share of the windows answered lately whose class got less than halfway from guessing"
            " to certainty"
        ),
    ),
    _service_gauge(
        "service_input_distance_ratio",
        labels={"version": (), "channel": ()},
        where=LATELY,
        help=(
            "Distance of the inputs answered lately from those of the training, in the training's"
            " standard deviations of the channel"
        ),
    ),
    _service_gauge(
        "service_sessions", labels={"kind": SESSIONS}, help="Live sessions that are open"
    ),
    _service_counter(
        "service_session_windows_total",
        labels={"kind": SESSIONS},
        help="Windows of live sessions that were answered",
    ),
    _service_histogram(
        "service_session_seconds",
        buckets=LATENCY_BUCKETS,
        help="From the message that completed a window of a live session to its answer",
    ),
    _service_counter(
        "service_session_faults_total",
        labels={"kind": FAULTS},
        help="Faults of the readings of live sessions",
    ),
    _service_counter(
        "service_sessions_refused_total",
        labels={"code": CLOSES},
        help="Live sessions that were closed with a reason, by code",
    ),
)
