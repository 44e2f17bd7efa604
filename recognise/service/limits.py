"""The limits of the service, and the error that names one of them to the person who asked."""

from dataclasses import dataclass, field

MEBIBYTE = 1 << 20


class RequestError(Exception):
    """A request that is refused with an HTTP status; the client reads `message`."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def bad(message: str) -> RequestError:
    """Return the error for a request that is wrong (400)."""
    return RequestError(400, message)


@dataclass(frozen=True)
class StreamLimits:
    """What live sessions take."""

    sessions: int = 128
    """Sessions that are open at one time, of each kind."""
    message_bytes: int = MEBIBYTE
    """One message of a session."""
    queued: int = 64
    """Messages of one session that came and are not read yet; the kernel holds the others back."""
    hello_seconds: float = 5.0
    """Time from the connection to the first message."""
    idle_seconds: float = 60.0
    """Time from one message to the next."""
    readings_per_second: float = 500.0
    burst_readings: int = 16_384
    """Four of the largest messages: what a phone collected while its network was away."""
    seconds_per_second: float = 1.25
    burst_seconds: int = 330
    """Time of the readings by their own clock, of which windows are made: the same burst at 50 Hz.
    """
    computing: int = 8
    """Windows of one session that are computed at one time, so that others come in between."""
    messages_per_second: float = 250.0
    burst_messages: int = 1000
    least_hop: int = 5
    """Samples between two windows: at most ten labels a second."""
    waiting: int = 64
    """Windows and faults of one session that wait for their answer."""
    room_seconds: float = 5.0
    """Time that one more may wait for room."""
    leave_seconds: float = 2.0
    """Time to compute windows when the service ends; the others go into the session's state."""


@dataclass(frozen=True)
class Limits:
    """What one service takes. The defaults fit a Raspberry Pi with 1 GB."""

    head_bytes: int = 16_384
    """Request line and headers."""
    body_bytes: int = 16 * MEBIBYTE
    """One request's body."""
    held_bytes: int = 32 * MEBIBYTE
    """All bodies that are read or wait for an answer at one time."""
    header_bytes: int = 65_536
    """The JSON part of a request with binary tensors."""
    windows: int = 512
    """Windows of one request."""
    waiting_windows: int = 4096
    """Windows of all requests that wait for a thread."""
    batch_windows: int = 64
    """Windows that are computed together, so that a runtime keeps memory for no more of them."""
    batch_seconds: float = 0.002
    """Time that a request waits for others to be computed with."""
    threads: int = 2
    """Batches that are computed at one time, each with one thread of the runtime."""
    body_seconds: float = 10.0
    """Time from the head of a request to the end of its body."""
    compute_seconds: float = 10.0
    """Time from the body to the answer."""
    memory_megabytes: int = 384
    """Memory that the service may take; `service.memory_megabytes` of an inventory."""
    open_seconds: float = 60.0
    """Time for a model's process to open it; a Raspberry Pi 3 takes a third."""
    watch_seconds: float = 60.0
    """Time after a promotion in which a version whose process ends twice is taken back."""
    connections: int = 128
    """Open connections; the oldest one without a request makes room for the next."""
    streams: StreamLimits = field(default_factory=StreamLimits)
    """Live sessions, whose connections are not among those above."""

    @property
    def model_bytes(self) -> int:
        """Memory that the process of one model may take: the service needs the other third."""
        return self.memory_megabytes * MEBIBYTE * 2 // 3
