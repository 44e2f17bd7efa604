"""A phone: a real Chromium whose sensors this process sets, as a person carries it about."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from core.ground.plausible import STANDARD_GRAVITY
from tests.cluster.pages.browser import Looking, Scheme, watched
from tests.lazy import Browser, Page, expect
from tests.recognise.readings import Readings
from tests.recognise.service.running import Service

PATIENCE_MILLISECONDS = 30_000

COUNT_SENT = """
(() => {
  window.sent = { readings: 0, begun: null, labels: [] };
  addEventListener("devicemotion", event => {
    // Chromium sends one event without values
    if (event.rotationRate?.alpha != null) sent.begun ??= performance.now();
  });
  const send = WebSocket.prototype.send;
  WebSocket.prototype.send = function (text) {
    const message = JSON.parse(text);
    if (message.times) {
      sent.readings += message.times.length;
      if (!this.isHeard) {
        this.isHeard = true;
        this.addEventListener("message", answer => {
          const event = JSON.parse(answer.data);
          if (event.event === "label")
            sent.labels.push([sent.readings, performance.now() - sent.begun, event]);
        });
      }
    }
    return send.call(this, text);
  };
})()
"""
"""Counts the readings that the page has sent when each label comes."""

AS_EVENTS = """
given => new Promise(done => {
  const { times, acceleration, rotation, hertz } = given, begin = performance.now();
  let at = 0;
  const timer = setInterval(() => {
    while (at < times.length && performance.now() - begin >= 1000 * at / hertz) {
      const [x, y, z] = acceleration[at], [alpha, beta, gamma] = rotation[at];
      const event = new DeviceMotionEvent("devicemotion", {
        accelerationIncludingGravity: { x, y, z },
        rotationRate: { alpha, beta, gamma },
        interval: 20,
      });
      Object.defineProperty(event, "timeStamp", { value: 1000 * times[at] });
      dispatchEvent(event);
      at++;
    }
    if (at === times.length) { clearInterval(timer); done(at); }
  }, 4);
})
"""
"""Dispatches events at their rate: sensor overrides are sampled by Chromium at 60 Hz, and rounded
to 0.1."""


@contextmanager
def phone(
    browser: Browser, service: Service, width: int = 360, scheme: Scheme = "light", script: str = ""
) -> Iterator[Looking]:
    """The page of the service on a phone."""
    context = browser.new_context(
        viewport={"width": width, "height": 740},
        color_scheme=scheme,
        ignore_https_errors=True,
        permissions=["accelerometer", "gyroscope"],
    )
    try:
        page = context.new_page()
        page.add_init_script(COUNT_SENT + script)
        seen = watched(page, service.address)
        page.goto(f"{service.scheme}://{service.address}/#token={service.token}", wait_until="load")
        yield seen
    finally:
        context.close()


def play_events(page: Page, readings: Readings, hertz: float = 50.0) -> None:
    """The readings as events of the page, at `hertz`; returns after the last one."""
    degrees = 57.29577951308232
    page.evaluate(
        AS_EVENTS,
        {
            "times": readings.times.tolist(),
            "acceleration": (readings.acceleration * STANDARD_GRAVITY).tolist(),
            "rotation": (readings.rotation * degrees).tolist(),
            "hertz": hertz,
        },
    )


def wait_until(page: Page, expression: str) -> None:
    """Wait until the expression is true.

    Playwright's own wait evaluates it within the page, whose policy forbids that.
    """
    end = time.monotonic() + PATIENCE_MILLISECONDS / 1000
    while not page.evaluate(expression):
        assert time.monotonic() < end, (expression, page.locator("main").inner_text())
        page.wait_for_timeout(20)


def connect(page: Page) -> None:
    page.get_by_role("button", name="Start").click()
    expect(page.locator("#message")).to_contain_text("Connected", timeout=PATIENCE_MILLISECONDS)


def still(count: int, begin: float = 0.0) -> Readings:
    """A phone on a table."""
    times = begin + np.arange(count) / 50
    return Readings(
        times, np.tile([0.0, 0.0, 1.0], (count, 1)), np.tile([0.01, 0.02, 0.03], (count, 1))
    )


def record(page: Page, label: str | None, readings: Readings) -> None:
    """Record one session, faster than a person would walk; None keeps the label."""
    if label is not None:
        page.get_by_label("I am going to").select_option(label)
    page.get_by_role("button", name="Record").click()
    play_events(page, readings, hertz=800)
    page.get_by_role("button", name="Stop").click()
