"""The page in a real Chromium: a recording becomes a file, and the file a model."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

from core.data.filters import NINE_CHANNELS
from core.data.npz_windows import read_windows
from core.data.recordings import Cutting
from core.exported import read as described_in
from core.plausible import STANDARD_GRAVITY
from recognise.recogniser import filter_warning
from recognise.stream import Settings, Stream, Window
from tests.cluster.jobs.cluster import SMALL, cluster_of
from tests.ran import python
from tests.recognise.exports import export
from tests.recognise.readings import Readings, walk
from tests.recognise.service.phone import (
    connect,
    phone,
    play_events,
    record,
    somebody_walks,
    still,
)
from tests.recognise.service.running import Service, service

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
        record(seen.page, "MOVING", moving)
        expect(seen.page.locator("#recorded")).to_contain_text(
            "Recorded 20 s of MOVING: 14 windows"
        )
        record(seen.page, "MOVING", walk(100, begin=50))
        expect(seen.page.locator("#recorded")).to_contain_text(
            "Too short: record at least 7 seconds"
        )
        record(
            seen.page,
            "STILL",
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
    found = stream.push(moving.times, moving.acceleration * STANDARD_GRAVITY, moving.rotation)
    expected = np.stack([one.channels for one in found if isinstance(one, Window)])
    recorded = np.concatenate(
        [arrays["x_train"][arrays["y_train"] == 1], arrays["x_test"][arrays["y_test"] == 1]]
    )
    np.testing.assert_allclose(recorded, np.concatenate([expected[:10], expected[11:]]), atol=2e-6)
    read = read_windows(path, Cutting(STEPS, STEPS // 2, 0), lambda *_: None)
    assert (read.labels, read.train_windows, len(read.windows)) == (("STILL", "MOVING"), 15, 20)
    assert read.signals == replace(NINE_CHANNELS, filters="causal")


def test_somebody_trains_on_a_recording_and_sees_the_result(
    browser: Browser, running: Service, tmp_path: Path
) -> None:
    """The three commands of docs/phone.md, as the processes that they start."""
    with phone(browser, running) as seen:
        connect(seen.page)
        walked, _ = somebody_walks(900)
        choose_own_name(seen.page, "my walk")
        record(seen.page, None, walked)
        record(
            seen.page,
            "STILL",
            still(900, begin=100),
        )
        path = downloaded(seen.page, tmp_path)
    with cluster_of(workers=1) as cluster:
        batch = "jobs.train.batch_size=8"  # there are few windows
        done = cluster.job(
            "train", f"jobs.train.data.source={path}", "jobs.train.epochs=1", *SMALL, batch
        )
        assert done.code == 0, done.errors
        assert (done.result["dataset"]["labels"], done.result["dataset"]["train_windows"]) == (
            ["STILL", "my walk"],
            18,
        )
        out = tmp_path / "mine"
        words = f"--run={done.folder}", "--to=onnx", f"--out={out}", "--quiet"
        python("-m", "cluster.export", *words)
        described = described_in(out)
        assert (described.sampling_hz, described.filters) == (50.0, "causal")
        assert filter_warning(described) is None
    with (
        service(tmp_path, "--model", str(out), "--name", "walk") as mine,
        phone(browser, mine) as seen,
    ):
        connect(seen.page)
        play_events(seen.page, walked.rows(slice(0, STEPS)), hertz=400)
        expect(seen.page.locator("#label")).to_have_text(re.compile("my walk|STILL"))
        expect(seen.page.locator("#model")).to_have_text("walk version 1")
        expect(seen.page.locator("#filters")).to_be_hidden()


def choose_own_name(page: Page, name: str) -> None:
    page.get_by_label("I am going to").select_option("something else")
    page.get_by_label("Name it").fill(name)
