"""A recording of Sensor Logger that posts nothing more is over, and leaves no session behind."""

import asyncio
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from recognise.service.limits import Limits
from recognise.service.live import sensor_logger
from recognise.service.live.recordings import PhoneRecording, RecordingRegistry, phone
from recognise.service.metrics import ServiceMetrics
from recognise.service.serving import Serving
from recognise.service.versions import Versions
from recognise.service.worker.process import Nursery
from tests.recognise.exports import export

SECONDS = 30.0


def test_a_silent_recording_ends_and_one_whose_post_is_computed_does_not(
    tmp_path: Path, nursery: Nursery
) -> None:
    limits = Limits(streams=replace(Limits().streams, idle_seconds=0.05))
    versions = Versions(tmp_path / "models")
    versions.promote(export(tmp_path / "export"))
    metrics = ServiceMetrics()

    def sessions() -> float:
        found = metrics.registry.get_sample_value(
            "pscluster_service_sessions", {"role": "service", "task": "0", "kind": "sensor_logger"}
        )
        assert found is not None
        return found

    async def scene() -> None:
        with closing(Serving("har", versions, limits, metrics, nursery)) as serving:
            await serving.begin()
            phones: RecordingRegistry = RecordingRegistry(limits)

            def begun(name: str) -> PhoneRecording:
                query = sensor_logger.Query()
                return phones._begin(name, lambda: phone(query, 1.0, serving, ""), "")

            silent = begun("silent")
            busy = begun("busy")
            async with busy.lock:  # its post is computed
                assert sessions() == 2
                while "silent" in phones._open:
                    await asyncio.sleep(0.01)
                assert set(phones._open) == {"busy"}
                assert sessions() == 1
            while phones._open:
                await asyncio.sleep(0.01)
            assert sessions() == 0
            assert phones._silences == {}
            assert begun("silent") is not silent  # the next post begins a new one
            phones.close()
            assert sessions() == 0

    asyncio.run(asyncio.wait_for(scene(), SECONDS))
