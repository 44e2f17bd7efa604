"""Numbers used once, over which a caller proves that it knows this process's key."""

import re
import secrets
import time
from collections.abc import Callable

from core.control.client import proof, same

NONCE = re.compile(r"[0-9a-f]{32,64}")
VALID_SECONDS = 30.0
"""Time from the challenge to the request that answers it."""


class Challenges:
    """Issues challenges and accepts each of them once.

    It keeps nothing of a challenge before a caller has answered it, so that asking for many costs
    no memory. One thread calls it: the server's.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._secret = secrets.token_hex(32)
        self._spent: dict[str, float] = {}

    def issue(self) -> str:
        """Return a challenge that no process issued before."""
        issued = f"{self._clock():.3f}-{secrets.token_hex(16)}"
        return f"{issued}-{proof(self._secret, issued)}"

    def is_open(self, challenge: str) -> bool:
        """Return whether this process issued it a short while ago and no request has spent it."""
        issued, _, mark = challenge.rpartition("-")
        if not same(mark, proof(self._secret, issued)):
            return False
        age = self._clock() - float(issued.partition("-")[0])
        return age <= VALID_SECONDS and challenge not in self._spent

    def spend(self, challenge: str) -> None:
        """Accept this open challenge no more."""
        now = self._clock()
        self._spent = {
            spent: since for spent, since in self._spent.items() if now - since <= VALID_SECONDS
        }
        self._spent[challenge] = now
