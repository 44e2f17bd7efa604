"""The page in a real Chromium, from its sensors to the label, over restarts."""

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

from tests.cluster.pages.browser import Scheme
from tests.lazy import Browser, expect
from tests.recognise.exports import export
from tests.recognise.readings import walk
from tests.recognise.service.phone import (
    PATIENCE_MILLISECONDS,
    connect,
    phone,
    play_events,
    record,
    wait_until,
)
from tests.recognise.service.running import Service, served, service

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

log = logging.getLogger(__name__)

MANY = 400
STEPS = 128
EACH = 4
"""Readings of a message of the page."""
EXPORT = export
WORDS = ("--tls",)


def test_the_first_label_comes_with_the_first_window(browser: Browser, running: Service) -> None:
    """128 readings at 50 Hz last 2.54 s; the seconds are reported, not asserted."""
    with phone(browser, running) as seen:
        connect(seen.page)
        play_events(seen.page, walk(STEPS + 4 * EACH))
        wait_until(seen.page, "sent.labels.length > 0")
        readings, milliseconds, event = seen.page.evaluate("sent.labels[0]")
        log.warning(
            "first label after %d readings, %.0f ms: %s",
            readings,
            milliseconds,
            json.dumps(event),
        )
        assert (
            STEPS <= readings <= STEPS + 2 * EACH
        )  # those of two messages more may be sent while it comes
        expect(seen.page.locator("#label")).to_have_text("Moving")
        expect(seen.page.locator("#confidence")).to_have_text(f"{event['confidence'] * 100:.0f} %")
        expect(seen.page.locator("#latency")).to_contain_text("ms")
        expect(seen.page.locator("#model")).to_have_text("har version 1")
        expect(seen.page.locator("#filters")).to_be_hidden()
        assert seen.wrongs == []


def test_a_model_of_two_way_filters_is_told(browser: Browser, tmp_path: Path) -> None:
    made = export(tmp_path / "export", filters="two-way")
    with service(tmp_path, "--model", str(made)) as running, phone(browser, running) as seen:
        connect(seen.page)
        expect(seen.page.locator("#filters")).to_contain_text(
            "This model was trained with two-way filters"
        )
        assert seen.wrongs == []


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (1280, "dark")])
def test_the_page_looks_well(
    browser: Browser, running: Service, width: int, scheme: Scheme
) -> None:
    with phone(browser, running, width, scheme) as seen:
        seen.looks_well()
        connect(seen.page)
        record(seen.page, "Moving", walk(MANY))
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
        wait_until(page, "sent.labels.length >= 8")
        assert page.evaluate("said") == ["Moving"]
        assert page.locator("#label").get_attribute("aria-live") == "polite"


def test_motion_that_is_refused_is_said(browser: Browser, running: Service) -> None:
    refuse = "DeviceMotionEvent.requestPermission = () => Promise.resolve('denied');"
    with phone(browser, running, script=refuse) as seen:
        seen.page.get_by_role("button", name="Start").click()
        expect(seen.page.locator("#message")).to_contain_text("Motion was refused")
        seen.looks_well()
        assert seen.page.get_by_role("button", name="Start").is_visible()


def test_an_iphone_s_other_sign_is_turned(browser: Browser, running: Service) -> None:
    """As WebKit on iOS, whose gravity has the other sign.

    Asking for permission is no sign of it: Chromium does too.
    """
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
        expect(seen.page.locator("#sensors")).to_contain_text(
            "No motion arrives", timeout=PATIENCE_MILLISECONDS
        )
        play_events(seen.page, walk(EACH))
        expect(seen.page.locator("#sensors")).to_have_text("")


def test_a_wrong_token_is_said_and_not_tried_again(browser: Browser, running: Service) -> None:
    with phone(browser, running) as seen:
        seen.page.goto("about:blank")
        seen.page.goto(f"https://{running.address}/#token=wrong")
        seen.page.get_by_role("button", name="Start").click()
        expect(seen.page.locator("#message")).to_contain_text("The service refused: expected token")


NO_SOCKET = """
;window.WebSocket = class { constructor() { setTimeout(() => this.onclose({ code: 1006 })); } };
"""
"""As where a proxy leaves out Upgrade: a browser says no more than that."""


def test_a_page_without_a_socket_says_what_the_service_says(
    browser: Browser, running: Service
) -> None:
    with phone(browser, running, script=NO_SOCKET) as seen:
        seen.page.get_by_role("button", name="Start").click()
        said = "The service says: expected a WebSocket to /v1/stream, got a request without Upgrade"
        expect(seen.page.locator("#message")).to_contain_text(said)


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


def test_a_restart_is_said_and_the_session_comes_back(browser: Browser, tmp_path: Path) -> None:
    with (
        served(tmp_path, make=export) as first,
        restarting(tmp_path, first) as restart,
        phone(browser, first) as seen,
    ):
        connect(seen.page)
        play_events(seen.page, walk(STEPS + EACH), hertz=400)
        expect(seen.page.locator("#label")).to_have_text("Moving")
        first.process.terminate()
        first.process.wait(30)
        said = "The service restarts; your session continues after that. Trying again in"
        expect(seen.page.locator("#message")).to_contain_text(said)
        expect(seen.page.locator("#label")).to_have_text("…")  # no label of before
        restart()
        expect(seen.page.locator("#message")).to_contain_text(
            "Connected", timeout=PATIENCE_MILLISECONDS
        )
        play_events(seen.page, walk(STEPS + EACH, begin=100), hertz=400)
        expect(seen.page.locator("#label")).to_have_text("Moving")


def test_where_another_model_answers_after_a_restart_the_session_begins_anew(
    browser: Browser, tmp_path: Path
) -> None:
    model = str(export(tmp_path / "export"))
    with (
        service(tmp_path, "--model", model) as first,
        restarting(tmp_path, first) as restart,
        phone(browser, first, script=HEAR) as seen,
    ):
        connect(seen.page)
        play_events(seen.page, walk(STEPS + EACH), hertz=400)
        restart("--name", "gait", "--model", model)
        expect(seen.page.locator("#model")).to_have_text(
            "gait version 1", timeout=PATIENCE_MILLISECONDS
        )
        refused = [one["error"] for one in seen.page.evaluate("heard") if one["event"] == "refused"]
        assert refused == [
            "resume: expected a state with model gait, got 'har': begin a new session without it"
        ]
        play_events(seen.page, walk(STEPS + EACH, begin=100), hertz=400)
        expect(seen.page.locator("#label")).to_have_text("Moving")
