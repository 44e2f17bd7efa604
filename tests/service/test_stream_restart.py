"""Restarts, a promotion and a rollback under live sessions and requests: nothing is dropped, no version is wrong.

Two services of one folder of versions, whose clients know both addresses. `pytest -m long -s` prints the figure.
"""

import logging
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from cluster.data.filters import CHANNELS
from cluster.exported import open_model
from recognise.recogniser import Recogniser, settings_of
from recognise.service.versions import Versions
from recognise.stream import Label
from tests.recognise.exports import STEPS, export
from tests.recognise.readings import Readings, walk
from tests.service.moving import Walker
from tests.service.running import PATH, Service, as_json, service
from tests.service.test_stream_takeover import swapped
from tests.service.test_takeover import wait_until_served

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

log = logging.getLogger(__name__)

SESSIONS, ASKERS = 8, 2
HELLO: dict[str, Any] = {"hop": 20, "votes": 1, "of": 1}
LABELS = ("MOVING", "STILL")
"""What versions 1 and 2 call a walk."""
PATIENCE_SECONDS = 60.0


class Pair:
    """Two services with folders of their own and the same versions."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder, self._stack = folder, stack
        self.versions = folder / "versions"
        self._running: list[tuple[ExitStack, Service] | None] = [None, None]

    def start(self, number: int, port: int = 0, *more: str) -> None:
        own = self._stack.enter_context(ExitStack())
        words = "--port", str(port), "--versions", str(self.versions), *more
        self._running[number] = own, own.enter_context(service(self._folder / str(number), *words))

    def restart(self, number: int) -> None:
        """As systemd does it: SIGTERM, the end, the same command once more."""
        found = self._running[number]
        assert found is not None
        own, running = found
        running.process.send_signal(signal.SIGTERM)
        running.process.wait(30)
        self._running[number] = None
        own.close()
        self.start(number, running.port)

    @property
    def places(self) -> Sequence[Service]:
        return [found[1] for found in self._running if found is not None]


class Asker:
    """Requests one after the other, each at a service that is there."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self.stop = threading.Event()
        self.versions: list[int] = []
        self.moves = 0
        self.wrong: list[object] = []

    def ask(self) -> None:
        readings = walk(STEPS)
        window = np.zeros((1, STEPS, len(CHANNELS)), np.float32)
        window[0, :, :3] = readings.acceleration  # version 1 calls it moving
        body = as_json(window, outputs=[{"name": "labels"}])
        while not self.stop.is_set() and not self.wrong:
            answer = self._answer(body)
            if answer is None:
                self.moves += 1
                continue
            found = answer.json()
            version = int(found.get("model_version", 0))
            if answer.status_code != 200 or found["outputs"][0]["data"] != [LABELS[version - 1]]:
                self.wrong.append((answer.status_code, found))
            self.versions.append(version)

    def _answer(self, body: dict[str, object]) -> httpx.Response | None:
        """None where that service has just ended: the request got no answer, and goes to the other."""
        for place in self._pair.places[len(self.versions) % 2 :] or self._pair.places:
            try:
                with place.client() as client:
                    return client.post(f"{PATH}/infer", json=body)
            except (httpx.ConnectError, httpx.RemoteProtocolError, httpx.ReadError):
                continue
        return None


@contextmanager
def under_load(walkers: Sequence[Walker], askers: Sequence[Asker]) -> Iterator[None]:
    threads = [threading.Thread(target=one.walk) for one in walkers]
    threads += [threading.Thread(target=one.ask) for one in askers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for stop in (*(one.stop for one in walkers), *(one.stop for one in askers)):
            stop.set()
        for thread in threads:
            thread.join()


def said(model: Path, readings: Readings) -> dict[float, tuple[str | None, float]]:
    """Time, label and confidence of each window of a session that nothing disturbs, from the library."""
    opened = open_model(model)
    recogniser = Recogniser(opened, settings_of(opened.description, **HELLO))
    found: dict[float, tuple[str | None, float]] = {}
    for start in range(0, len(readings), 1000):
        part = readings.rows(slice(start, start + 1000))
        for one in recogniser.push(part.times, part.acceleration, part.rotation):
            if isinstance(one, Label):
                found[one.at] = one.label, one.confidence
    return found


def wait_for_labels(walkers: Sequence[Walker], more: int, version: int) -> None:
    """Until each session has so many more labels, the last one of this version."""
    before = [len(walker.labels) for walker in walkers]
    for walker, count in zip(walkers, before, strict=True):
        for _ in range(int(PATIENCE_SECONDS / 0.05)):
            labels = walker.labels
            if walker.wrong or (len(labels) >= count + more and labels[-1]["version"] == version):
                break
            walker.stop.wait(0.05)
        else:
            pytest.fail(f"too few labels of version {version}: {walker.labels[-2:]}")


def test_restarts_a_promotion_and_a_rollback_drop_no_session(tmp_path: Path) -> None:
    first, second = export(tmp_path / "export-1"), swapped(tmp_path / "export-2")
    with ExitStack() as stack:
        pair = Pair(tmp_path, stack)
        pair.start(0, 0, "--model", str(first))
        pair.start(1)
        walkers = [Walker(_turned(pair, number), walk(20_000, seed=number), **HELLO) for number in range(SESSIONS)]
        askers = [Asker(pair) for _ in range(ASKERS)]
        with under_load(walkers, askers):
            wait_for_labels(walkers, 3, 1)
            for number in (0, 1):
                pair.restart(number)
                wait_for_labels(walkers, 3, 1)
            versions = Versions(pair.versions / "har")
            versions.promote(second)
            for place in pair.places:
                wait_until_served(place, 2)
            wait_for_labels(walkers, 3, 2)
            pair.restart(0)  # a state of version 2 goes on at version 2
            wait_for_labels(walkers, 3, 2)
            versions.rollback()
            for place in pair.places:
                wait_until_served(place, 1)
            wait_for_labels(walkers, 3, 1)
    assert [walker.wrong for walker in walkers] == [[]] * SESSIONS
    assert [asker.wrong for asker in askers] == [[]] * ASKERS
    wrong_versions = 0
    for walker in walkers:
        wanted = {1: said(first, walker.taken), 2: said(second, walker.taken)}
        assert [one["at"] for one in walker.labels] == list(wanted[1]), "each window has its label, once and in order"
        for one in walker.labels:
            label, confidence = wanted[one["version"]][one["at"]]
            wrong_versions += one["label"] != label
            assert one["confidence"] == pytest.approx(confidence, abs=1e-4)
        assert not [one for one in walker.events if one["event"] not in ("label", "changed", "version")]
        order = [one["version"] for one in walker.labels]
        assert int(np.count_nonzero(np.diff(order))) == 2, order
    moves = sum(walker.moves for walker in walkers)
    assert moves >= SESSIONS
    assert wrong_versions == 0
    log.warning(
        "%d sessions at 50 Hz, %d labels, %d moves of sessions, %d requests of which %d went to the other service: "
        "0 sessions dropped, 0 labels missing, %d wrong versions", SESSIONS, sum(len(one.labels) for one in walkers),
        moves, sum(len(one.versions) for one in askers), sum(one.moves for one in askers), wrong_versions,
    )  # fmt: skip


def _turned(pair: Pair, number: int):  # type: ignore[no-untyped-def]
    """Every second session asks the second service first."""
    return lambda: list(pair.places)[:: -1 if number % 2 else 1]
