"""Which connection of a server makes room for the next, and which have had their time. Pure."""

from collections.abc import Iterable
from typing import Protocol, TypeVar


class Waiting(Protocol):
    """A connection as far as its server decides whether it stays."""

    @property
    def idle(self) -> bool:
        """Whether no answer to it is under way."""

    @property
    def since(self) -> float:
        """Return the time at which its present wait began."""


class Timed(Protocol):
    """A connection that must get on until a time."""

    @property
    def deadline(self) -> float:
        """Return when its time is up; infinity for one whose answer is under way."""


Idle = TypeVar("Idle", bound=Waiting)
Limited = TypeVar("Limited", bound=Timed)


def oldest_idle(connections: Iterable[Idle]) -> Idle | None:
    """Return the connection that makes room: the one that has been idle for longest, if any is."""
    idle = [connection for connection in connections if connection.idle]
    return min(idle, key=lambda connection: connection.since, default=None)


def expired(connections: Iterable[Limited], now: float) -> list[Limited]:
    """Return the connections whose time is up."""
    return [connection for connection in connections if now >= connection.deadline]
