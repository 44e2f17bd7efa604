"""When a guarded server counts as silent for too long."""

import signal
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from core.engine import watchdog
from core.engine.watchdog import STANDSTILL_SECONDS, Silence
from tests.core.engine.played_servers import Server


class Guarded:
    """A server that is guarded by the watchdog's own clock, which moves by hand."""

    def __init__(self, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(watchdog, "time", SimpleNamespace(monotonic=lambda: self.now))
        self.guard = Silence(10.0)
        self.guard.guard("ps:0", *server.at)
        self.known = self.guard._guarded["ps:0"]
        server.stop()

    def wait(self, *steps: float) -> dict[str, float]:
        """What is found silent in turns after so many seconds each."""
        found: dict[str, float] = {}
        for seconds in steps:
            self.now += seconds
            found |= self.guard.wait(0.0)
        return found


@pytest.fixture
def guarded(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Guarded]:
    made = Guarded(server, monkeypatch)
    yield made
    made.guard.close()


def test_a_server_that_stops_for_less_is_not_lost_and_one_that_stops_for_longer_is_lost_once(
    guarded: Guarded, server: Server
) -> None:
    for _ in range(2):
        assert guarded.wait(*[1.0] * 9) == {}
        server.process.send_signal(signal.SIGCONT)
        while guarded.known.silent_seconds or not guarded.known.asked_at:
            assert guarded.guard.wait(0.1) == {}  # no time passes until it has answered
        server.stop()
    assert set(guarded.wait(*[1.0] * 15)) == {"ps:0"}
    assert guarded.wait(0.0) == {}


def test_no_server_is_silent_while_the_watchdog_itself_is_stopped(guarded: Guarded) -> None:
    assert guarded.wait(95.0) == {}
    assert guarded.known.silent_seconds == STANDSTILL_SECONDS
