"""The watch of the pointer, in one event loop: it outlives every version that cannot be opened."""

import asyncio
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from recognise.service import serving as module
from recognise.service.limits import Limits
from recognise.service.loading import Computer
from recognise.service.metrics import ServiceMetrics
from recognise.service.serving import Serving
from recognise.service.worker.process import Nursery
from tests.recognise.service.test_versions import made

REFUSED = {"role": "service", "task": "0", "result": "refused"}


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
    nursery: Nursery,
) -> None:
    def opened(folder: Path, limits: Limits, nursery: Nursery) -> Computer:
        if folder.name == "2" and problem is not None:
            raise problem
        return Computer(folder, limits, nursery)

    monkeypatch.setattr(module, "Computer", opened)
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.01)
    versions = made(tmp_path, 1, 2)
    versions.rollback()
    if problem is None:
        model = versions.path(2) / "model.onnx"
        model.write_bytes(model.read_bytes()[:-1] + b"?")
    metrics = ServiceMetrics()

    async def follow() -> list[int]:
        with closing(Serving("har", versions, Limits(), metrics, nursery)) as serving:
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
