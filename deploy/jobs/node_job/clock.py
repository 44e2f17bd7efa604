"""The time as records have it."""

from datetime import UTC, datetime


def now() -> str:
    """UTC in ISO 8601, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")
