"""How much one client may send: a bucket that fills with time. Pure."""

from recognise.service.refusals import bad


class Rate:
    """So many a second on average, and `burst` at once."""

    def __init__(self, what: str, per_second: float, burst: int, now: float) -> None:
        self._what, self._per_second, self._burst = what, per_second, burst
        self._left, self._at = float(burst), now

    def take(self, count: int, now: float) -> None:
        """Raises RefusedError when it is more than the rate."""
        self._left = min(self._burst, self._left + (now - self._at) * self._per_second)
        self._at = now
        if count > self._left:
            raise bad(f"too fast: expected at most {self._per_second:g} {self._what} a second, {self._burst} at once")
        self._left -= count
