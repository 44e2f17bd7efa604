"""A phone sees itself: the page in a real Chromium, from its sensors to the label, and from a recording to a file."""

import json
import logging
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

from cluster.data.npz_windows import read_windows
from cluster.data.recordings import Cutting
from cluster.exported import read as described_in
from recognise.recogniser import filter_warning
from recognise.stream import Settings, Stream, Window
from recognise.stream.settings import STANDARD_GRAVITY
from tests.jobs.cluster import SMALL, cluster_of
from tests.pages.browser import Scheme, chromium
from tests.recognise.exports import export
from tests.recognise.readings import Readings, walk
from tests.service.phone import PROJECT, Sensors, phone, play_events, somebody_walks
from tests.service.running import Service, service

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

log = logging.getLogger(__name__)

MANY = 400
PATIENCE_MILLISECONDS = 30_000
STEPS = 128
EACH = 4
"""Readings of a message of the page."""
LABELLED = "document.getElementById('label').textContent !== '…'"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("phone")
    with service(folder, "--model", str(export(folder / "export")), "--tls") as made:
        yield made


def connect(page: Page) -> None:
    page.get_by_role("button", name="Start").click()
    expect(page.locator("#message")).to_contain_text("Connected", timeout=PATIENCE_MILLISECONDS)


def still(count: int) -> Readings:
    """A phone on a table."""
    times = np.arange(count) / 50
    return Readings(times, np.tile([0.0, 0.0, 1.0], (count, 1)), np.zeros((count, 3)))


def test_the_first_label_comes_with_the_first_window(browser: Browser, running: Service) -> None:
    """128 readings at 50 Hz are 2.54 s from the first to the last; the seconds are reported, not asserted."""
    with phone(browser, running) as seen:
        connect(seen.page)
        given, where = somebody_walks(STEPS + 4 * EACH)
        play_events(seen.page, given)
        seen.page.wait_for_function("sent.labels.length > 0")
        readings, milliseconds, event = seen.page.evaluate("sent.labels[0]")
        log.warning("%s: first label after %d readings, %.0f ms: %s", where, readings, milliseconds, json.dumps(event))
        assert STEPS <= readings <= STEPS + 2 * EACH  # those of two messages more may be sent while it comes
        expect(seen.page.locator("#label")).to_have_text("MOVING")
        expect(seen.page.locator("#confidence")).to_have_text(f"{event['confidence'] * 100:.0f} %")
        expect(seen.page.locator("#latency")).to_contain_text("ms")
        expect(seen.page.locator("#model")).to_have_text("har version 1")
        expect(seen.page.locator("#filters")).to_be_hidden()
        assert seen.wrongs == []


def test_a_model_of_two_way_filters_is_told(browser: Browser, tmp_path: Path) -> None:
    made = export(tmp_path / "export", filters="two-way")
    with service(tmp_path, "--model", str(made)) as running, phone(browser, running) as seen:
        connect(seen.page)
        expect(seen.page.locator("#filters")).to_contain_text("This model was trained with two-way filters")
        assert seen.wrongs == []


def test_chromium_s_own_sensors_reach_the_label(browser: Browser, running: Service) -> None:
    with phone(browser, running) as seen:
        sensors = Sensors(seen.page)
        sensors.put((0, 0, 1), (0, 0, 0))
        connect(seen.page)
        sensors.play(still(MANY), seen.page, f"{LABELLED} && sent.labels.at(-1)[2].label === 'STILL'")
        sensors.play(somebody_walks(MANY)[0], seen.page, "sent.labels.at(-1)[2].label === 'MOVING'")
        expect(seen.page.locator("#label")).to_have_text("MOVING")
        assert seen.wrongs == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_the_page_looks_well(browser: Browser, running: Service, width: int, scheme: Scheme) -> None:
    with phone(browser, running, width, scheme) as seen:
        seen.looks_well()
        connect(seen.page)
        record(seen.page, "MOVING", walk(MANY))
        seen.page.get_by_label("I am going to").select_option("something else")
        expect(seen.page.get_by_label("Name it")).to_be_visible()
        seen.looks_well()


def test_a_label_is_announced_once_for_each_change(browser: Browser, running: Service) -> None:
    with phone(browser, running) as seen:
        page = seen.page
        connect(page)
        page.evaluate("""() => { window.said = [];
          const seen = new MutationObserver(() => said.push(label.textContent));
          seen.observe(label, { childList: true, subtree: true }); }""")
        given = walk(MANY)
        play_events(page, given, hertz=400)
        page.wait_for_function("sent.labels.length >= 8")
        assert page.evaluate("said") == ["MOVING"]
        assert page.locator("#label").get_attribute("aria-live") == "polite"


def test_motion_that_is_refused_is_said(browser: Browser, running: Service) -> None:
    refuse = "DeviceMotionEvent.requestPermission = () => Promise.resolve('denied');"
    with phone(browser, running, script=refuse) as seen:
        seen.page.get_by_role("button", name="Start").click()
        expect(seen.page.locator("#message")).to_contain_text("Motion was refused")
        seen.looks_well()
        assert seen.page.get_by_role("button", name="Start").is_visible()


def test_an_iphone_s_other_sign_is_turned(browser: Browser, running: Service) -> None:
    """As WebKit on iOS, whose gravity has the other sign. Asking for permission is no sign of it: Chromium does too."""
    apple = "Object.defineProperty(navigator, 'vendor', { value: 'Apple Computer, Inc.' });"
    measured = """async () => { const { readingOf } = await import('/page/motion.js');
      return readingOf({ timeStamp: 1500, accelerationIncludingGravity: { x: 1, y: -2, z: 9.8 },
        rotationRate: { alpha: 180, beta: 90, gamma: -180 } }); }"""
    rotation = pytest.approx([np.pi, np.pi / 2, -np.pi])
    for script, sign in ((apple, -1), ("", 1)):
        with phone(browser, running, script=script) as seen:
            found = seen.page.evaluate(measured)
            assert found["acceleration"] == [sign, -2 * sign, 9.8 * sign]
            assert (found["time"], found["rotation"]) == (1.5, rotation)
            connect(seen.page)


def test_a_device_without_sensors_is_told(browser: Browser, running: Service) -> None:
    with phone(browser, running) as seen:
        connect(seen.page)
        expect(seen.page.locator("#sensors")).to_contain_text("No motion arrives", timeout=PATIENCE_MILLISECONDS)
        play_events(seen.page, walk(EACH))
        expect(seen.page.locator("#sensors")).to_have_text("")


def test_a_wrong_token_is_said_and_not_tried_again(browser: Browser, running: Service) -> None:
    with phone(browser, running) as seen:
        seen.page.goto("about:blank")
        seen.page.goto(f"https://{running.address}/#token=wrong")
        seen.page.get_by_role("button", name="Start").click()
        expect(seen.page.locator("#message")).to_contain_text("The service refused: expected token")


HEAR = """
;(() => {
  const Real = WebSocket;
  window.heard = [];
  window.WebSocket = class extends Real {
    constructor(...given) {
      super(...given);
      this.addEventListener("message", message => heard.push(JSON.parse(message.data)));
    }
  };
})()
"""
"""Notes every event of every session."""


@contextmanager
def restarting(folder: Path, first: Service) -> Iterator[Callable[..., None]]:
    """A call ends the service and starts one at the same port; those end with the block."""
    with ExitStack() as stack:

        def restart(*words: str) -> None:
            first.process.terminate()
            first.process.wait(30)
            stack.enter_context(service(folder, "--port", str(first.port), *words))

        yield restart


def test_a_session_continues_after_a_restart_of_the_service(browser: Browser, tmp_path: Path) -> None:
    """Readings go on at 50 Hz meanwhile: each window has its label, once and in order, and there is no gap."""
    count = 600
    with (
        service(tmp_path, "--model", str(export(tmp_path / "export"))) as first,
        restarting(tmp_path, first) as restart,
        phone(browser, first, script=HEAR) as seen,
    ):
        connect(seen.page)
        timer = threading.Timer(4.0, restart)  # s, of twelve
        timer.start()
        try:
            play_events(seen.page, walk(count))
        finally:
            timer.join()
        expected = [pytest.approx((127 + 25 * number) / 50) for number in range((count - 128) // 25 + 1)]
        seen.page.wait_for_function(
            f"heard.filter(one => one.event === 'label').length >= {len(expected)}", timeout=PATIENCE_MILLISECONDS
        )
        heard = seen.page.evaluate("heard")
        kinds = [one["event"] for one in heard]
        assert [one["at"] for one in heard if one["event"] == "label"] == expected
        assert (kinds.count("moved"), kinds.count("ready"), kinds.count("fault"), kinds.count("changed")) == (
            1,
            2,
            0,
            1,
        )
        expect(seen.page.locator("#label")).to_have_text("MOVING")


def test_a_restart_is_said_and_the_session_comes_back(browser: Browser, tmp_path: Path) -> None:
    with (
        service(tmp_path, "--model", str(export(tmp_path / "export"))) as first,
        restarting(tmp_path, first) as restart,
        phone(browser, first) as seen,
    ):
        connect(seen.page)
        play_events(seen.page, walk(STEPS + EACH), hertz=400)
        expect(seen.page.locator("#label")).to_have_text("MOVING")
        first.process.terminate()
        first.process.wait(30)
        said = "The service restarts; your session continues after that. Trying again in"
        expect(seen.page.locator("#message")).to_contain_text(said)
        expect(seen.page.locator("#label")).to_have_text("…")  # no label of before
        restart()
        expect(seen.page.locator("#message")).to_contain_text("Connected", timeout=PATIENCE_MILLISECONDS)
        play_events(seen.page, walk(STEPS + EACH, begin=100), hertz=400)
        expect(seen.page.locator("#label")).to_have_text("MOVING")


def test_where_another_model_answers_after_a_restart_the_session_begins_anew(browser: Browser, tmp_path: Path) -> None:
    model = str(export(tmp_path / "export"))
    with (
        service(tmp_path, "--model", model) as first,
        restarting(tmp_path, first) as restart,
        phone(browser, first, script=HEAR) as seen,
    ):
        connect(seen.page)
        play_events(seen.page, walk(STEPS + EACH), hertz=400)
        restart("--name", "gait", "--model", model)
        expect(seen.page.locator("#model")).to_have_text("gait version 1", timeout=PATIENCE_MILLISECONDS)
        refused = [one["error"] for one in seen.page.evaluate("heard") if one["event"] == "refused"]
        assert refused == ["resume: expected a state with model gait, got 'har': begin a new session without it"]
        play_events(seen.page, walk(STEPS + EACH, begin=100), hertz=400)
        expect(seen.page.locator("#label")).to_have_text("MOVING")


def record(page: Page, label: str | None, readings: Readings) -> None:
    """One session of what the phone measures meanwhile, faster than a person would walk; None: the label stays."""
    if label is not None:
        page.get_by_label("I am going to").select_option(label)
    page.get_by_role("button", name="Record").click()
    play_events(page, readings, hertz=800)
    page.get_by_role("button", name="Stop").click()


def downloaded(page: Page, folder: Path) -> Path:
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Download").click()
    path = folder / waiting.value.suggested_filename
    waiting.value.save_as(path)
    return path


def test_a_recording_becomes_the_windows_of_the_stream(browser: Browser, running: Service, tmp_path: Path) -> None:
    jitter = np.random.default_rng(3).uniform(-0.004, 0.004, 1200)
    moving = walk(1200, hz=60)
    moving = Readings(moving.times + jitter, moving.acceleration, moving.rotation)
    with phone(browser, running) as seen:
        connect(seen.page)
        record(seen.page, "MOVING", moving)
        expect(seen.page.locator("#recorded")).to_contain_text("Recorded 20 s of MOVING: 14 windows")
        record(seen.page, "MOVING", walk(100, begin=50))
        expect(seen.page.locator("#recorded")).to_contain_text("Too short: record at least 7 seconds")
        record(seen.page, "STILL", Readings(100 + still(600).times, still(600).acceleration, still(600).rotation))
        path = downloaded(seen.page, tmp_path)
        assert seen.wrongs == []
    arrays = np.load(path)
    assert {name: arrays[name].shape for name in arrays.files} == {
        "x_train": (10 + 5, STEPS, 9), "y_train": (15,), "x_test": (3 + 2, STEPS, 9), "y_test": (5,), "labels": (2,),
        "sampling_hz": (), "filters": (1,),
    }  # fmt: skip
    assert arrays["labels"].tolist() == ["STILL", "MOVING"]
    stream = Stream(Settings(votes=1, of=1, acceleration_unit="m/s2"))
    found = stream.push(moving.times, moving.acceleration * STANDARD_GRAVITY, moving.rotation)
    expected = np.stack([one.channels for one in found if isinstance(one, Window)])
    recorded = np.concatenate([arrays["x_train"][arrays["y_train"] == 1], arrays["x_test"][arrays["y_test"] == 1]])
    np.testing.assert_allclose(recorded, np.concatenate([expected[:10], expected[11:]]), atol=2e-6)
    read = read_windows(path, Cutting(STEPS, STEPS // 2, 0), lambda *_: None)
    assert (read.labels, read.train_windows, len(read.windows)) == (("STILL", "MOVING"), 15, 20)
    assert (read.sampling_hz, read.filters) == (50.0, "causal")


def test_somebody_trains_on_a_recording_and_sees_the_result(
    browser: Browser, running: Service, tmp_path: Path
) -> None:  # fmt: skip
    """The three commands of docs/phone.md, as the processes that they start."""
    with phone(browser, running) as seen:
        connect(seen.page)
        walked, _ = somebody_walks(900)
        choose_own_name(seen.page, "my walk")
        record(seen.page, None, walked)
        record(seen.page, "STILL", Readings(100 + still(900).times, still(900).acceleration, still(900).rotation))
        path = downloaded(seen.page, tmp_path)
    with cluster_of(workers=1) as cluster:
        batch = "jobs.train.batch_size=8"  # there are few windows
        done = cluster.job("train", f"jobs.train.data.source={path}", "jobs.train.epochs=1", *SMALL, batch)
        assert done.code == 0, done.errors
        assert (done.result["dataset"]["labels"], done.result["dataset"]["train_windows"]) == (["STILL", "my walk"], 18)
        out = tmp_path / "mine"
        words = f"--run={done.folder}", "--to=onnx", f"--out={out}", "--quiet"
        exported = subprocess.run(
            [sys.executable, "-m", "cluster.export", *words], cwd=PROJECT, capture_output=True, text=True, check=False,
            timeout=200,
        )  # fmt: skip
        assert exported.returncode == 0, exported.stderr
        described = described_in(out)
        assert (described.sampling_hz, described.filters) == (50.0, "causal")
        assert filter_warning(described) is None
    with service(tmp_path, "--model", str(out), "--name", "walk") as mine, phone(browser, mine) as seen:
        connect(seen.page)
        play_events(seen.page, walked.rows(slice(0, STEPS)), hertz=400)
        expect(seen.page.locator("#label")).to_have_text(re.compile("my walk|STILL"))
        expect(seen.page.locator("#model")).to_have_text("walk version 1")
        expect(seen.page.locator("#filters")).to_be_hidden()


def choose_own_name(page: Page, name: str) -> None:
    page.get_by_label("I am going to").select_option("something else")
    page.get_by_label("Name it").fill(name)
