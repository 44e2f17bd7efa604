"""What waits is computed together, and each request gets its own answer."""

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from recognise.service.limits import Limits, RequestError
from recognise.service.loading import Computer
from recognise.service.serving import Batcher
from recognise.service.worker import Kind, process, send
from recognise.service.worker.process import Nursery
from tests.recognise.service.exports import export, windows

LIMITS = replace(Limits(), threads=1, batch_windows=8, batch_seconds=0.0, waiting_windows=20)
Floats = np.ndarray


def rows(count: int, value: float) -> Floats:
    return np.full((count, 2, 3), value, np.float32)


class WaitingModel:
    """A model that computes once it may; `batches` are the numbers of windows of each call."""

    def __init__(self) -> None:
        self.may, self.began = threading.Event(), threading.Event()
        self.batches: list[int] = []

    def logits(self, windows: Floats) -> Floats:
        self.batches.append(len(windows))
        self.began.set()
        assert self.may.wait(30)
        found: Floats = windows[:, 0, :2]
        return found


def play(
    scene: Callable[[WaitingModel, Batcher], Awaitable[None]], limits: Limits = LIMITS
) -> WaitingModel:
    held = WaitingModel()

    async def whole() -> None:
        with ThreadPoolExecutor(limits.threads) as pool:
            try:
                await scene(held, Batcher(held.logits, pool, limits))
            finally:
                held.may.set()

    asyncio.run(whole())
    return held


async def begun(held: WaitingModel) -> None:
    assert await asyncio.to_thread(held.began.wait, 30)


def asked(batcher: Batcher, *counts: int) -> list["asyncio.Future[Floats]"]:
    """Requests of so many windows, which are filled with their number."""
    return [asyncio.ensure_future(batcher.logits(rows(count, count))) for count in counts]


async def answered(requests: list["asyncio.Future[Floats]"], *counts: int) -> None:
    """Each has its own answer."""
    found = await asyncio.gather(*requests)
    assert [answer.tolist() for answer in found] == [[[count, count]] * count for count in counts]


def test_a_batch_is_no_larger_than_allowed_and_a_request_is_never_split() -> None:
    async def scene(held: WaitingModel, batcher: Batcher) -> None:
        held.may.set()
        await answered(asked(batcher, 5, 4, 4, 12, 1), 5, 4, 4, 12, 1)

    limits = replace(LIMITS, waiting_windows=100, batch_seconds=0.2)
    assert play(scene, limits).batches == [5, 8, 12, 1]


def test_a_request_waits_for_others_as_long_as_it_is_told() -> None:
    async def scene(held: WaitingModel, batcher: Batcher) -> None:
        held.may.set()
        waiting = asked(batcher, 1, 1, 1)
        await asyncio.sleep(0)
        assert held.batches == []
        await asyncio.gather(*waiting)

    assert play(scene, replace(LIMITS, batch_seconds=0.2)).batches == [3]


def test_too_many_waiting_windows_are_refused_and_addresses_take_turns() -> None:
    async def scene(held: WaitingModel, batcher: Batcher) -> None:
        waiting = asked(batcher, 10, 10, 10)
        await begun(held)
        with pytest.raises(RequestError, match="more than 20 windows wait already") as refused:
            await batcher.logits(rows(1, 0))
        assert refused.value.status == 503
        for address, count in (("one", 1), ("two", 5), ("three", 5), ("four", 5), ("five", 5)):
            waiting.append(asyncio.ensure_future(batcher.logits(rows(count, 1), address)))
            await asyncio.sleep(0)
            assert batcher.waiting_windows <= LIMITS.waiting_windows
        held.may.set()
        answers = await asyncio.gather(*waiting, return_exceptions=True)
        refused_ones = [isinstance(answer, RequestError) for answer in answers]
        assert refused_ones == [False, True, True, False, False, False, False, True]

    assert play(scene).batches == [10, 6, 5, 5]


def test_what_nobody_waits_for_any_more_is_left_out() -> None:
    async def scene(held: WaitingModel, batcher: Batcher) -> None:
        first = asked(batcher, 1)
        await begun(held)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await batcher.logits(rows(3, 3))
        last = asked(batcher, 2)
        await asyncio.sleep(0)
        held.may.set()
        await answered([*first, *last], 1, 2)

    assert play(scene).batches == [1, 2]


def test_a_client_that_leaves_while_its_batch_is_computed_keeps_no_other_from_its_answer() -> None:
    async def scene(held: WaitingModel, batcher: Batcher) -> None:
        leaves, stays = asked(batcher, 1, 2)
        await begun(held)
        leaves.cancel()
        held.may.set()
        await answered([stays], 2)
        await answered(asked(batcher, 3), 3)

    async def in_time(held: WaitingModel, batcher: Batcher) -> None:
        async with asyncio.timeout(60):
            await scene(held, batcher)

    assert play(in_time, replace(LIMITS, batch_seconds=0.05)).batches == [3, 3]


def test_a_failure_reaches_each_request_of_its_batch_and_no_other() -> None:
    async def scene(held: WaitingModel, batcher: Batcher) -> None:
        held.may.set()
        wrong = batcher.logits(np.zeros((1, 2, 1), np.float32))
        found = await asyncio.gather(batcher.logits(rows(1, 1)), wrong, return_exceptions=True)
        # Arrays that cannot be joined.
        assert [type(one) for one in found] == [ValueError, ValueError]
        await answered(asked(batcher, 4), 4)

    play(scene, replace(LIMITS, batch_seconds=0.05))


def test_a_model_computes_no_more_windows_at_once_than_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nursery: Nursery
) -> None:
    export(tmp_path / "export")
    given = windows(150)
    with closing(Computer(tmp_path / "export", Limits(batch_windows=150), nursery)) as computer:
        whole = computer.logits(given)
    sizes: list[int] = []

    def counted(channel: socket.socket, kind: Kind, content: bytes) -> None:
        sizes.append(len(content) // given[0].nbytes)
        send(channel, kind, content)

    with closing(Computer(tmp_path / "export", Limits(threads=1), nursery)) as parts:
        monkeypatch.setattr(process, "send", counted)
        np.testing.assert_allclose(parts.logits(given), whole, rtol=1e-6)
    assert sizes == [64, 64, 22]
