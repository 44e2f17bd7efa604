"""The page in a real Chromium: a recording becomes a file, and the file a model."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from core.data.filters import NINE_CHANNELS
from core.data.npz import read_windows
from core.ground.plausible import STANDARD_GRAVITY
from recognise.stream import Settings, Stream, Window
from tests.lazy import Browser, Page, expect
from tests.recognise.exports import export
from tests.recognise.readings import Readings, walk
from tests.recognise.service.phone import (
    connect,
    phone,
    record,
    still,
)
from tests.recognise.service.running import Service

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

STEPS = 128
EXPORT = export
WORDS = ("--tls",)


def downloaded(page: Page, folder: Path) -> Path:
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Download").click()
    path = folder / waiting.value.suggested_filename
    waiting.value.save_as(path)
    return path


def test_a_recording_becomes_the_windows_of_the_stream(
    browser: Browser, running: Service, tmp_path: Path
) -> None:
    jitter = np.random.default_rng(3).uniform(-0.004, 0.004, 1200)
    moving = walk(1200, hz=60)
    moving = Readings(moving.times + jitter, moving.acceleration, moving.rotation)
    with phone(browser, running) as seen:
        connect(seen.page)
        record(seen.page, "Moving", moving)
        expect(seen.page.locator("#recorded")).to_contain_text(
            "Recorded 20 s of Moving: 14 windows"
        )
        record(seen.page, "Moving", walk(100, begin=50))
        expect(seen.page.locator("#recorded")).to_contain_text(
            "Too short: record at least 7 seconds"
        )
        record(
            seen.page,
            "Still",
            still(600, begin=100),
        )
        path = downloaded(seen.page, tmp_path)
        assert seen.wrongs == []
    arrays = np.load(path)
    assert {name: arrays[name].shape for name in arrays.files} == {
        "x_train": (10 + 5, STEPS, 9),
        "y_train": (15,),
        "x_test": (3 + 2, STEPS, 9),
        "y_test": (5,),
        "labels": (2,),
        "channels": (9,),
        "units": (9,),
        "sampling_hz": (),
        "filters": (1,),
    }
    assert arrays["labels"].tolist() == ["STILL", "MOVING"]
    stream = Stream(Settings(votes=1, of=1, acceleration_unit="m/s2"))
    moving = moving.scaled("acceleration", STANDARD_GRAVITY)
    found = stream.push_values(moving.times, moving.values)
    expected = np.stack([one.channels for one in found if isinstance(one, Window)])
    recorded = np.concatenate(
        [arrays["x_train"][arrays["y_train"] == 1], arrays["x_test"][arrays["y_test"] == 1]]
    )
    np.testing.assert_allclose(recorded, np.concatenate([expected[:10], expected[11:]]), atol=2e-6)
    read = read_windows(path)
    assert (read.labels, read.train_windows, len(read.windows)) == (("STILL", "MOVING"), 15, 20)
    assert read.signals == replace(NINE_CHANNELS, filters="causal")
