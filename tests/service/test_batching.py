"""What waits is computed together, and each request gets its own answer."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from recognise.service.batching import Batcher
from recognise.service.limits import Limits
from recognise.service.loading import Computer
from recognise.service.refusals import RefusedError
from tests.service.exports import export, windows

LIMITS = replace(Limits(), threads=1, batch_windows=8, batch_seconds=0.0, waiting_windows=20)
Floats = np.ndarray


def rows(count: int, value: float) -> Floats:
    return np.full((count, 2, 3), value, np.float32)


class Held:
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


def play(scene: Callable[[Held, Batcher], Awaitable[None]], limits: Limits = LIMITS) -> Held:
    held = Held()

    async def whole() -> None:
        with ThreadPoolExecutor(limits.threads) as pool:
            try:
                await scene(held, Batcher(held.logits, pool, limits))
            finally:
                held.may.set()

    asyncio.run(whole())
    return held


async def begun(held: Held) -> None:
    assert await asyncio.to_thread(held.began.wait, 30)


def test_requests_that_wait_for_the_thread_are_one_batch() -> None:
    async def scene(held: Held, batcher: Batcher) -> None:
        first = asyncio.ensure_future(batcher.logits(rows(1, 0)))
        await begun(held)
        others = [asyncio.ensure_future(batcher.logits(rows(count, count))) for count in (1, 2, 3)]
        await asyncio.sleep(0)
        assert batcher.waiting_windows == 6
        held.may.set()
        assert (await first).tolist() == [[0, 0]]
        for count, other in zip((1, 2, 3), others, strict=True):
            assert (await other).tolist() == [[count, count]] * count

    assert play(scene).batches == [1, 6]


def test_a_batch_is_no_larger_than_allowed_and_a_request_is_never_split() -> None:
    async def scene(held: Held, batcher: Batcher) -> None:
        held.may.set()
        answers = await asyncio.gather(*(batcher.logits(rows(count, count)) for count in (5, 4, 4, 12, 1)))
        assert [len(answer) for answer in answers] == [5, 4, 4, 12, 1]

    limits = replace(LIMITS, waiting_windows=100, batch_seconds=0.2)
    assert play(scene, limits).batches == [5, 8, 12, 1]


def test_a_request_waits_for_others_as_long_as_it_is_told() -> None:
    async def scene(held: Held, batcher: Batcher) -> None:
        held.may.set()
        waiting = [asyncio.ensure_future(batcher.logits(rows(1, value))) for value in range(3)]
        await asyncio.sleep(0)
        assert held.batches == []
        await asyncio.gather(*waiting)

    assert play(scene, replace(LIMITS, batch_seconds=0.2)).batches == [3]


def test_too_many_waiting_windows_are_refused() -> None:
    async def scene(held: Held, batcher: Batcher) -> None:
        waiting = [asyncio.ensure_future(batcher.logits(rows(10, 0))) for _ in range(3)]
        await begun(held)
        with pytest.raises(RefusedError, match="more than 20 windows wait already") as refused:
            await batcher.logits(rows(1, 0))
        assert refused.value.status == 503
        held.may.set()
        await asyncio.gather(*waiting)

    assert play(scene).batches == [10, 10, 10]


def test_what_nobody_waits_for_any_more_is_left_out() -> None:
    async def scene(held: Held, batcher: Batcher) -> None:
        first = asyncio.ensure_future(batcher.logits(rows(1, 0)))
        await begun(held)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await batcher.logits(rows(3, 3))
        last = asyncio.ensure_future(batcher.logits(rows(2, 2)))
        await asyncio.sleep(0)
        held.may.set()
        await first
        assert (await last).tolist() == [[2, 2]] * 2

    assert play(scene).batches == [1, 2]


def test_a_failure_reaches_each_request_of_its_batch_and_no_other() -> None:
    async def scene(held: Held, batcher: Batcher) -> None:
        held.may.set()
        wrong = np.zeros((1, 2, 1), np.float32)
        found = await asyncio.gather(batcher.logits(rows(1, 1)), batcher.logits(wrong), return_exceptions=True)
        assert [type(one) for one in found] == [ValueError, ValueError]  # arrays that cannot be joined
        assert (await batcher.logits(rows(1, 4))).tolist() == [[4, 4]]

    play(scene, replace(LIMITS, batch_seconds=0.05))


def test_a_model_computes_no_more_windows_at_once_than_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    export(tmp_path / "export")
    given = windows(150)
    whole = Computer(tmp_path / "export", threads=1, most=150).logits(given)
    parts = Computer(tmp_path / "export", threads=1, most=64)
    sizes: list[int] = []
    model = parts._idle.get()
    once = model.logits

    def counted(some: Floats) -> Floats:
        sizes.append(len(some))
        return once(some)

    monkeypatch.setattr(model, "logits", counted)
    parts._idle.put(model)
    np.testing.assert_allclose(parts.logits(given), whole, rtol=1e-6)
    assert sizes == [64, 64, 22]
