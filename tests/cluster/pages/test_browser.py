"""Page and report in a real browser: every state, narrow and wide, light and dark."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from cluster.jobs.lifecycle import environment
from cluster.pages import server as live
from cluster.pages.comparison import comparison
from cluster.pages.drawing import STATIC, Drawing
from cluster.pages.files import StoredRun, run_of
from cluster.pages.report import report
from cluster.pages.server import PageServer
from cluster.pages.sweep import sweep_page
from core.status.view import ConfusionView, RunView
from tests.cluster.pages import sweeps
from tests.cluster.pages.browser import Looking, Scheme, chromium, looking
from tests.cluster.pages.example import LABELS, begun, estimating, failed, hostile, training
from tests.cluster.pages.folders import left, pi_result, train_result
from tests.lazy import Browser, Page, expect

pytestmark = pytest.mark.long

VIEWS = {
    "training": training(),
    "few": training(3),
    "pi": estimating(),
    "begun": begun(),
    "failed": failed(),
    "hostile": hostile(),
}
PATIENCE_MILLISECONDS = 30_000
Size = tuple[int, Scheme]
SIZES: list[Size] = [(400, "light"), (400, "dark"), (1600, "light"), (1600, "dark")]


def sized(sizes: list[Size]) -> pytest.MarkDecorator:
    """For each of these windows."""
    return pytest.mark.parametrize("size", sizes, ids=lambda size: f"{size[0]}-{size[1]}")


class Shown:
    """The run that the server shows now."""

    def __init__(self, view: RunView) -> None:
        self.now = view

    def view(self) -> RunView:
        return self.now


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@contextmanager
def serving(shown: Shown, port: int = 0) -> Iterator[str]:
    server = PageServer("127.0.0.1", port, shown.view, Drawing(), STATIC)
    try:
        yield f"http://127.0.0.1:{server.port}/"
    finally:
        server.close()


@contextmanager
def served(browser: Browser, shown: Shown) -> Iterator[Looking]:
    """The page of that run, in a window."""
    with serving(shown) as address, looking(browser, address) as seen:
        yield seen


def file_looks_well(browser: Browser, folder: Path, text: str, size: Size) -> None:
    """A page that is a file looks well in such a window, with all its tables open."""
    (folder / "page.html").write_text(text)
    with looking(browser, (folder / "page.html").as_uri(), *size) as seen:
        seen.looks_well_opened()


@sized(SIZES)
@pytest.mark.parametrize("name", VIEWS)
def test_the_page_looks_well(browser: Browser, name: str, size: Size) -> None:
    with serving(Shown(VIEWS[name])) as address, looking(browser, address, *size) as seen:
        expect(seen.page.locator("#lost")).to_have_text("")
        seen.looks_well_opened()


def test_the_page_changes_with_the_run_and_keeps_what_was_opened(browser: Browser) -> None:
    shown = Shown(replace(training(2), progress=None))
    with served(browser, shown) as seen:
        page = seen.page
        page.locator("#chart-loss summary").click()
        rows = page.locator("#chart-loss tbody tr")
        before = rows.last.text_content()
        canvas = page.locator("#chart-loss canvas")
        painted = canvas.screenshot()
        later = training(2)
        more = tuple(
            replace(sample, seconds=sample.seconds + 480.0, loss=0.1) for sample in later.samples
        )
        tested = ConfusionView("test", LABELS[:2], ((5, 1), (0, 7)))
        shown.now = replace(later, samples=later.samples + more, confusion=tested)
        expect(page.locator("#head")).to_contain_text("1,665 of 2,220 updates")
        expect(page.locator(".matrix")).to_contain_text("Test set")
        expect(rows.last).not_to_have_text(before or "")
        expect(page.locator("#chart-loss details")).to_have_attribute("open", "")
        assert canvas.screenshot() != painted
        expect(canvas).to_have_attribute(
            "aria-label",
            "Loss. training, at the moment: 0.1 at 16 min 0 s; "
            "training, mean of an epoch: 0.316 at 7 min 30 s; "
            "held-out people: 0.433 at 7 min 30 s",
        )
        seen.looks_well()


NEXT = "20991231T000000Z-train"


@contextmanager
def ended_under(browser: Browser, shown: Shown) -> Iterator[tuple[Page, Callable[[], str]]]:
    """The page of a run, and what ends its server; it answers with where that was."""
    with ExitStack() as stack:
        address = stack.enter_context(serving(shown))
        with looking(browser, address) as seen:

            def end() -> str:
                stack.close()
                return address

            yield seen.page, end


@contextmanager
def next_job(shown: Shown, address: str) -> Iterator[None]:
    """Another job serves its page where that was."""
    shown.now = replace(training(2), run=NEXT)
    with serving(shown, urlsplit(address).port or 0) as again:
        assert again == address
        yield


def test_a_lost_connection_is_said_and_mended(browser: Browser) -> None:
    shown = Shown(training(2))
    with ended_under(browser, shown) as (page, end):
        lost = page.locator("#lost")
        expect(page.locator("#head")).to_contain_text("running")
        expect(lost).to_have_text("")
        address = end()
        expect(lost).not_to_have_text("", timeout=PATIENCE_MILLISECONDS)
        with next_job(shown, address):
            expect(lost).to_have_text("", timeout=PATIENCE_MILLISECONDS)
            expect(page.locator(".run")).to_contain_text(NEXT)


@pytest.mark.parametrize("closing", [live.CLOSING, "lost"])
def test_a_job_that_is_done_is_no_fault(
    browser: Browser, closing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "CLOSING", closing)
    shown = Shown(training(2))
    with ended_under(browser, shown) as (page, end):
        shown.now = done = replace(training(2), state="done")
        expect(page.locator("#head [data-state=done]")).to_be_visible()
        address = end()
        lost = page.locator("#lost")
        words = f"The job is done: its report is {done.run}/report.html"
        expect(lost).to_contain_text(words, timeout=PATIENCE_MILLISECONDS)
        expect(lost).not_to_contain_text("Connection lost")
        with next_job(shown, address):
            expect(lost).to_have_text("", timeout=PATIENCE_MILLISECONDS)


@sized(SIZES)
def test_reports_look_well(browser: Browser, tmp_path: Path, size: Size) -> None:
    shown = training()
    assert shown.confusion is not None
    done = replace(
        shown,
        state="done",
        progress=None,
        confusion=replace(shown.confusion, split="test", epoch=None),
        figures={"test": train_result()["final"]},
    )
    runs = [
        run_of(left(tmp_path / f"2026112{seed}T233535Z-train", train_result(seed)))
        for seed in range(3)
    ]
    pi = StoredRun(tmp_path, estimating(state="done"), pi_result(16, 10**9, 14.0), environment())
    texts = [
        report(StoredRun(tmp_path, done, train_result(workers=16), environment())),
        report(pi),
        report(runs[0]),
        comparison(runs),
        sweep_page(sweeps.left(tmp_path / "sweep", sweeps.EXAMPLES["thesis"])),
        sweep_page(sweeps.left(tmp_path / "hostile", sweeps.EXAMPLES["hostile"])),
    ]
    for text in texts:
        file_looks_well(browser, tmp_path, text, size)


def test_page_and_report_are_read_without_scripts(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(report(StoredRun(tmp_path, training(), train_result())))
    context = browser.new_context(java_script_enabled=False)
    with serving(Shown(training())) as address:
        for read in (address, (tmp_path / "page.html").as_uri()):
            page = context.new_page()
            page.goto(read)
            expect(page.locator(".tile").first).to_be_visible()
            expect(page.locator(".confusion")).to_contain_text("Walking upstairs")
            page.locator("#chart-loss summary").click()
            expect(page.locator("#chart-loss tbody tr").last).to_contain_text("8 min 0 s")
    context.close()


CUT = "all => all.filter(one => one.scrollHeight > one.clientHeight + 1).map(one => one.ariaLabel)"
"""Boxes that do not show all their rows."""
CUT_AT_THE_SIDE = (
    "all => all.filter(one => one.scrollWidth > one.clientWidth + 1).map(one => one.ariaLabel)"
)
"""Boxes that do not show all their columns."""
LONG_TITLES = """all => all.map(canvas => Chart.getChart(canvas)).filter(chart => chart).flatMap(
 chart => {
  const scale = chart.scales.y, title = scale.options.title;
  if (!title || !title.display) return [];
  chart.ctx.font = Chart.helpers.toFont(title.font).string;
  return chart.ctx.measureText(title.text).width > scale.height ? [title.text] : [];
})"""
"""Titles of axes that are longer than their axis."""
BROKEN = """all => all.filter(one => {
  const range = document.createRange();
  range.selectNodeContents(one);
  return new Set([...range.getClientRects()].map(part => Math.round(part.top))).size > 1;
}).map(one => one.textContent)"""
"""Texts in more than one row."""


def test_a_report_hides_no_row_and_breaks_no_number(browser: Browser, tmp_path: Path) -> None:
    long = training()
    assert long.train is not None
    epochs = tuple(replace(long.train.epochs[0], epoch=epoch) for epoch in range(1, 101))
    long = replace(long, train=replace(long.train, epochs=epochs), events=long.events * 40)
    result = pi_result(16, 10**9, 14.0, estimate=3.14138532, standard_error=0.000123456)
    texts = [
        report(StoredRun(tmp_path, long, train_result(), environment())),
        report(StoredRun(tmp_path, estimating(state="done"), result, environment())),
    ]
    for text in texts:
        (tmp_path / "page.html").write_text(text)
        with looking(browser, (tmp_path / "page.html").as_uri()) as seen:
            page = seen.page
            for width in (400, 480, 600, 760, 1000, 1200, 1280, 1600):
                page.set_viewport_size({"width": width, "height": 900})
                assert page.locator(".scroll:visible").evaluate_all(CUT) == [], width
                assert page.locator(".tile strong").evaluate_all(BROKEN) == [], width
                if width >= 1000:
                    assert page.locator("canvas:visible").evaluate_all(LONG_TITLES) == [], width
                    matrices = page.locator(".matrices .scroll")
                    assert matrices.evaluate_all(CUT_AT_THE_SIDE) == [], width
            page.emulate_media(media="print")
            assert page.locator(".scroll:visible").evaluate_all(CUT) == []
