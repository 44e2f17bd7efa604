"""Restarts, a promotion and a rollback drop no live session and no request.

Two services of one folder of versions, whose clients know both addresses. `pytest -m long -s`
prints the figure.
"""

import logging
import signal
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from core.exported import open_model
from recognise.service.versions import Versions
from tests.recognise.exports import STEPS, export
from tests.recognise.readings import Readings, walk
from tests.recognise.service.moving import Asker, Walker, swapped, under_way, wait_for_labels
from tests.recognise.service.running import Service, service, wait_until_served
from tests.recognise.service.streaming import library
from tests.recognise.service.test_takeover import HELLO, SESSIONS

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

log = logging.getLogger(__name__)

ASKERS = 2


class Pair:
    """Two services with folders of their own and the same versions."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self.versions = folder / "versions"
        self._running: dict[int, tuple[ExitStack, Service]] = {}

    def start(self, number: int, port: int = 0, *more: str) -> None:
        own = self._stack.enter_context(ExitStack())
        words = "--port", str(port), "--versions", str(self.versions), *more
        self._running[number] = own, own.enter_context(service(self._folder / str(number), *words))

    def restart(self, number: int) -> None:
        """As systemd does it: SIGTERM, the end, the same command once more."""
        own, running = self._running[number]
        running.process.send_signal(signal.SIGTERM)
        running.process.wait(30)
        del self._running[number]
        own.close()
        self.start(number, running.port)

    def places(self, first: int = 0) -> Sequence[Service]:
        """The services that run, from the `first` one on."""
        return [self._running[each][1] for each in (first, 1 - first) if each in self._running]


def said(model: Path, readings: Readings) -> dict[float, tuple[str | None, float]]:
    """Return time, label and confidence of each window of an undisturbed session."""
    events = library(model, readings, **HELLO)
    return {
        one["at"]: (one["label"], one["confidence"]) for one in events if one["event"] == "label"
    }


def test_restarts_a_promotion_and_a_rollback_drop_no_session(tmp_path: Path) -> None:
    first = export(tmp_path / "export-1")
    second = swapped(tmp_path / "export-2")
    given = np.random.default_rng(0).normal(size=(1, STEPS, 9)).astype(np.float32)
    wanted = {1: open_model(first).logits(given), 2: open_model(second).logits(given)}
    with ExitStack() as stack:
        pair = Pair(tmp_path, stack)
        pair.start(0, 0, "--model", str(first))
        pair.start(1)
        walkers = [
            Walker(partial(pair.places, number % 2), walk(20_000, seed=number), **HELLO)
            for number in range(SESSIONS)
        ]
        askers = [Asker(pair.places, given, wanted) for _ in range(ASKERS)]

        def all_get(version: int) -> None:
            for place in pair.places():
                wait_until_served(place, version)
            wait_for_labels(walkers, 3, version)

        with under_way(*walkers, *askers):
            all_get(1)
            for number in (0, 1):
                pair.restart(number)
                all_get(1)
            versions = Versions(pair.versions / "har")
            versions.promote(second)
            all_get(2)
            pair.restart(0)  # a state of version 2 goes on at version 2
            all_get(2)
            versions.rollback()
            all_get(1)
    assert [one.wrong for one in walkers] == [[]] * SESSIONS
    assert [one.wrong for one in askers] == [[]] * ASKERS
    for walker in walkers:
        undisturbed = {1: said(first, walker.taken), 2: said(second, walker.taken)}
        assert [one["at"] for one in walker.labels] == list(undisturbed[1]), (
            "each window has its label, once and in order"
        )
        for one in walker.labels:
            label, confidence = undisturbed[one["version"]][one["at"]]
            assert one["label"] == label
            assert one["confidence"] == pytest.approx(confidence, abs=1e-4)
        assert {one["event"] for one in walker.events} <= {"label", "changed", "version"}
        order = [one["version"] for one in walker.labels]
        assert int(np.count_nonzero(np.diff(order))) == 2, order
    moves = sum(walker.moves for walker in walkers)
    assert moves >= SESSIONS
    log.warning(
        "%d sessions at 50 Hz, %d labels, %d moves of sessions, %d requests of which %d went to the"
        " other service: 0 sessions dropped, 0 labels missing, 0 wrong versions",
        SESSIONS,
        sum(len(one.labels) for one in walkers),
        moves,
        sum(len(one.versions) for one in askers),
        sum(one.moves for one in askers),
    )
