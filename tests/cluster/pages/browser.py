"""A headless Chromium, and what a page that people look at must not do in it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from tests.habits import needs
from tests.lazy import Browser, Page

PAINTED = """canvas => {
  const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  const colors = new Set(); let painted = 0;
  for (let at = 0; at < pixels.length; at += 4) if (pixels[at + 3]) {
    painted++; colors.add(pixels[at] << 16 | pixels[at + 1] << 8 | pixels[at + 2]); }
  return { share: painted / (pixels.length / 4), colors: colors.size, width: canvas.width };
}"""
"""How much of a canvas is painted, in how many colours."""

Scheme = Literal["light", "dark"]


@contextmanager
def chromium() -> Iterator[Browser]:
    """The browser of this machine; without one the test is skipped."""
    from playwright.sync_api import sync_playwright

    path = needs.tool("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Looking:
    """A page that is looked at, and what it did that it should not."""

    page: Page
    host: str
    wrongs: list[str] = field(default_factory=list)

    def looks_well(self) -> None:
        """No chart is blank, nothing sticks out at the side, axe objects to nothing, no error."""
        for canvas in self.page.locator("canvas:visible").all():
            found = canvas.evaluate(PAINTED)
            least = {"width": 200, "share": 0.01, "colors": 3}
            few = [name for name in least if found[name] <= least[name]]
            assert few == [], (canvas.get_attribute("aria-label"), found)
        document = "document.documentElement"
        assert self.page.evaluate(f"{document}.scrollWidth <= {document}.clientWidth"), (
            "wider than the screen"
        )
        from axe_playwright_python.sync_playwright import Axe

        found = Axe().run(self.page)
        assert found.violations_count == 0, found.generate_report()
        assert self.wrongs == []

    def looks_well_opened(self) -> None:
        """The same, with all that can be opened."""
        for summary in self.page.locator("summary:visible").all():
            summary.click()
        self.looks_well()


def picture(page: Page, name: str) -> None:
    """Write it for the documentation where `PSCLUSTER_PICTURES` names a folder."""
    folder = os.environ.get("PSCLUSTER_PICTURES")
    if folder:
        page.set_viewport_size({"width": 1280, "height": 1400})
        page.wait_for_function(
            "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() =>"
            " done(true))))"
        )
        Path(folder, f"{name}.png").write_bytes(page.screenshot())


@contextmanager
def looking(
    browser: Browser, address: str, width: int = 1600, scheme: Scheme = "light"
) -> Iterator[Looking]:
    """The page at `address` in a window of that width."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    try:
        page = context.new_page()
        seen = watched(page, urlsplit(address).netloc)
        page.goto(address, wait_until="load")
        yield seen
    finally:
        context.close()


def watched(page: Page, host: str) -> Looking:
    """Note from now on what the page should not do: errors, requests to other hosts."""
    seen = Looking(page, host)
    page.on("console", lambda message: _note(seen, message.type, message.text))
    page.on("pageerror", lambda problem: seen.wrongs.append(f"uncaught: {problem}"))
    page.on("request", lambda request: _asked(seen, request.url))
    return seen


def _note(seen: Looking, kind: str, text: str) -> None:
    if kind in ("error", "warning"):
        seen.wrongs.append(f"{kind}: {text}")


def _asked(seen: Looking, address: str) -> None:
    found = urlsplit(address)
    if found.scheme not in ("data", "file") and found.netloc != seen.host:
        seen.wrongs.append(f"asked {address}")
