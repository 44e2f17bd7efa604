"""The watch of the pointer, in one event loop: it outlives every version that cannot be opened."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from recognise.service import serving as module
from recognise.service import versions as versions_module
from recognise.service.limits import Limits
from recognise.service.loading import Computer, Floats, described
from recognise.service.metrics import ServiceMetrics
from recognise.service.serving import Serving
from tests.recognise.service.test_versions import made

REFUSED = {"role": "service", "task": "0", "result": "refused"}
TAKEN_BACK = {**REFUSED, "result": "taken_back"}


@pytest.mark.parametrize(
    "problem",
    [None, MemoryError(), OSError(5, "Input/output error"), RuntimeError("no session")],
    ids=["another file than its hash says", "memory", "disk", "runtime"],
)
def test_a_version_that_cannot_be_opened_leaves_the_watch_running(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    problem: Exception | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def opened(folder: Path, limits: Limits) -> Computer:
        if folder.name == "2" and problem is not None:
            raise problem
        return Computer(folder, limits)

    monkeypatch.setattr(module, "Computer", opened)
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.01)
    versions = made(tmp_path, 1, 2)
    versions.rollback()
    if problem is None:
        model = versions.path(2) / "model.onnx"
        model.write_bytes(model.read_bytes()[:-1] + b"?")
    metrics = ServiceMetrics()

    async def follow() -> list[int]:
        with closing(Serving("har", versions, Limits(), metrics)) as serving:
            await serving.begin()
            watch = asyncio.create_task(serving.follow())

            async def until(has_come: Callable[[], bool]) -> int:
                while not has_come():
                    assert not watch.done()
                    await asyncio.sleep(0.01)
                return serving.current.number

            served = [serving.current.number]
            versions._point((1, 2))  # what no promotion of a damaged version would do
            served.append(await until(lambda: "version 2 is refused" in caplog.text))
            versions._point((1,))
            await asyncio.to_thread(made, tmp_path, 3)
            served.append(await until(lambda: serving.current.number == 3))
            watch.cancel()
            return served

    assert asyncio.run(asyncio.wait_for(follow(), 30.0)) == [1, 1, 3]
    name = "pscluster_service_takeovers_total"
    assert metrics.registry.get_sample_value(name, REFUSED) == 1


class EndingComputer:
    """A computer whose process ends when a test says so."""

    def __init__(self, folder: Path, limits: Limits) -> None:
        self.description = described(folder)
        self.pool = ThreadPoolExecutor(1)
        self.lost = ""

    def logits(self, windows: Floats) -> Floats:
        raise NotImplementedError

    def reopen(self) -> None:
        self.lost = ""

    def close(self) -> None:
        self.pool.shutdown()


def test_only_a_promoted_version_is_taken_back_when_its_process_ends_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that the service began with, or that it went back to, has served before."""
    monkeypatch.setattr(versions_module, "tried", lambda folder, limits: described(folder))
    monkeypatch.setattr(module, "Computer", EndingComputer)
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(module, "MEND_SECONDS", 0.0)
    versions = made(tmp_path, 1, 2)
    metrics = ServiceMetrics()

    async def scene() -> list[int]:
        with closing(Serving("har", versions, Limits(), metrics)) as serving:
            await serving.begin()
            tasks = [asyncio.create_task(serving.follow()), asyncio.create_task(serving.watch())]

            async def until(has_come: Callable[[], bool]) -> None:
                while not has_come():
                    assert not any(task.done() for task in tasks)
                    await asyncio.sleep(0.01)

            async def after_two_ends() -> int:
                number = serving.current.number
                for _ in range(2):
                    computer: Any = serving.current.computer
                    computer.lost = "killed"
                    await until(lambda computer=computer: not computer.lost)  # type: ignore[misc]
                    if versions.current() != number:
                        await until(lambda: serving.current.number != number)
                return serving.current.number

            numbers = [await after_two_ends()]
            made(tmp_path, 3)
            await until(lambda: serving.current.number == 3)
            taken_back = asyncio.create_task(after_two_ends())
            await until(lambda: serving.current.number == 2)
            taken_back.cancel()
            numbers += [serving.current.number, await after_two_ends()]
            for task in tasks:
                task.cancel()
            return numbers

    assert asyncio.run(asyncio.wait_for(scene(), 30.0)) == [2, 2, 2]
    name = "pscluster_service_takeovers_total"
    assert metrics.registry.get_sample_value(name, TAKEN_BACK) == 1
