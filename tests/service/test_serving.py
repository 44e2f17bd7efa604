"""The watch of the pointer, in one event loop: it outlives every version that cannot be opened."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from recognise.service import serving as module
from recognise.service.limits import Limits
from recognise.service.loading import Computer
from recognise.service.metrics import ServiceMetrics
from recognise.service.serving import Serving
from recognise.service.versions import Versions
from tests.service.exports import export

SECONDS = 30.0


@pytest.mark.parametrize("problem", [MemoryError(), OSError(5, "Input/output error"), RuntimeError("no session")])
def test_a_version_that_cannot_be_opened_leaves_the_watch_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    for number in (1, 2, 3):
        export(tmp_path / f"export-{number}", float(number))

    def opened(folder: Path, threads: int, most: int) -> Computer:
        if folder.name == "2":
            raise problem
        return Computer(folder, threads, most)

    monkeypatch.setattr(module, "Computer", opened)
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.01)
    versions = Versions(tmp_path / "models")
    versions.promote(tmp_path / "export-1")

    async def follow() -> list[int]:
        with ThreadPoolExecutor(1) as pool:
            serving = Serving("har", versions, pool, Limits(), ServiceMetrics())
            await serving.begin()
            watch = asyncio.create_task(serving.follow())
            served = [serving.current.number]
            await asyncio.to_thread(versions.promote, tmp_path / "export-2")
            while "version 2 is refused" not in caplog.text:
                assert not watch.done()
                await asyncio.sleep(0.01)
            served.append(serving.current.number)
            await asyncio.to_thread(versions.promote, tmp_path / "export-3")
            while serving.current.number != 3:
                assert not watch.done()
                await asyncio.sleep(0.01)
            watch.cancel()
            return [*served, serving.current.number]

    assert asyncio.run(asyncio.wait_for(follow(), SECONDS)) == [1, 1, 3]
