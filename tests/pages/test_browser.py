"""Page and report in a real browser, with runs that are made up: every state, narrow and wide, light and dark."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, expect

from cluster.jobs.lifecycle import environment
from cluster.pages import server as live
from cluster.pages.comparison import comparison
from cluster.pages.drawing import STATIC, Drawing
from cluster.pages.report import report
from cluster.pages.run_files import Run, run_of
from cluster.pages.server import PageServer
from cluster.pages.sweep import sweep_page
from cluster.status.parts import Figures
from cluster.status.view import ConfusionView, RunView
from tests.pages import sweeps
from tests.pages.browser import Scheme, chromium, looking
from tests.pages.example import LABELS, begun, estimating, failed, hostile, training
from tests.pages.folders import left, pi_result, train_result
from tests.pages.other_tasks import left as left_of
from tests.pages.other_tasks import many_classes, multilabel, regression, regression_that_ended

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

VIEWS = {
    "training": training(),
    "few": training(3),
    "pi": estimating(),
    "begun": begun(),
    "failed": failed(),
    "hostile": hostile(),
}
OTHERS = {
    "regression": regression_that_ended().view(61.0),
    "labels": multilabel().view(61.0),
    "classes": many_classes().view(61.0),
}
"""Runs that learn something else than activities."""
SIZES: list[tuple[int, Scheme]] = [(400, "light"), (400, "dark"), (1600, "light"), (1600, "dark")]
SIZE_NAMES = [f"{width}-{scheme}" for width, scheme in SIZES]
PATIENCE_MILLISECONDS = 30_000


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


@pytest.mark.parametrize(("width", "scheme"), SIZES, ids=SIZE_NAMES)
@pytest.mark.parametrize("name", VIEWS)
def test_the_page_looks_well(browser: Browser, name: str, width: int, scheme: Scheme) -> None:
    with serving(Shown(VIEWS[name])) as address, looking(browser, address, width, scheme) as seen:
        expect(seen.page.locator("#lost")).to_have_text("")
        for summary in seen.page.locator("summary:visible").all():
            summary.click()
        seen.looks_well()


def test_pages_and_reports_of_other_tasks_look_well(browser: Browser, tmp_path: Path) -> None:
    for view in OTHERS.values():
        with serving(Shown(view)) as address, looking(browser, address, 400, "dark") as seen:
            seen.looks_well()
    runs = [
        run_of(left_of(tmp_path / f"2026010{at}T000000Z-train", regression(3), Figures(loss=1.0, others={"r2": 0.1})))
        for at in (1, 2)
    ]
    texts = {name: report(Run(tmp_path, view)) for name, view in OTHERS.items()}
    for name, text in {**texts, "several": comparison(runs)}.items():
        path = tmp_path / f"{name}.html"
        path.write_text(text)
        with looking(browser, path.as_uri()) as seen:
            for summary in seen.page.locator("summary:visible").all():
                summary.click()
            seen.looks_well()


@pytest.mark.parametrize(("width", "scheme"), [SIZES[0], SIZES[3]], ids=[SIZE_NAMES[0], SIZE_NAMES[3]])
def test_the_page_of_a_sweep_looks_well(browser: Browser, tmp_path: Path, width: int, scheme: Scheme) -> None:
    bars = sweeps.sweep([sweeps.run(at, {"jobs.train.mode": name}) for at, name in enumerate(("sync", "async"), 1)])
    for name, found in {"thesis": sweeps.of_the_thesis(), "bars": bars, "hostile": sweeps.hostile()}.items():
        path = tmp_path / f"{name}.html"
        path.write_text(sweep_page(sweeps.left(tmp_path / name, found)))
        with looking(browser, path.as_uri(), width, scheme) as seen:
            for summary in seen.page.locator("summary:visible").all():
                summary.click()
            seen.looks_well()


def test_a_page_that_learns_what_a_regression_measures_gets_its_charts(browser: Browser) -> None:
    shown = Shown(regression(0).view(61.0))
    with serving(shown) as address, looking(browser, address) as seen:
        expect(seen.page.locator("#chart-loss")).to_be_visible()
        assert seen.page.locator("#chart-accuracy, #confusion-name").count() == 0
        shown.now = regression(2).view(61.0)
        expect(seen.page.locator("#chart-other-0 canvas")).to_be_visible()
        expect(seen.page.locator("#chart-other-2 h2")).to_have_text("R²")
        expect(seen.page.locator(".tiles")).to_contain_text("MAE")
        seen.looks_well()


def test_the_page_changes_with_the_run_and_keeps_what_was_opened(browser: Browser) -> None:
    shown = Shown(replace(training(2), progress=None))
    with serving(shown) as address, looking(browser, address) as seen:
        page = seen.page
        page.locator("#chart-loss summary").click()
        rows = page.locator("#chart-loss tbody tr")
        before = rows.last.text_content()
        canvas = page.locator("#chart-loss canvas")
        painted = canvas.screenshot()
        later = training(2)
        more = tuple(replace(sample, seconds=sample.seconds + 480.0, loss=0.1) for sample in later.samples)
        tested = ConfusionView("test", LABELS[:2], ((5, 1), (0, 7)))
        shown.now = replace(later, samples=later.samples + more, confusion=tested)
        expect(page.locator("#head")).to_contain_text("1,665 of 2,220 updates")
        expect(page.locator(".confusion")).to_contain_text("Test set")
        expect(rows.last).not_to_have_text(before or "")
        expect(page.locator("#chart-loss details")).to_have_attribute("open", "")
        assert canvas.screenshot() != painted
        expect(canvas).to_have_attribute("aria-label", "Loss. training, at the moment: 0.1 at 16 min 0 s; "
                                         "training, mean of an epoch: 0.316 at 7 min 30 s; "
                                         "held-out people: 0.433 at 7 min 30 s")  # fmt: skip
        seen.looks_well()


def test_charts_appear_with_their_first_numbers(browser: Browser) -> None:
    waiting = replace(begun(), run=training(2).run)
    shown = Shown(waiting)
    with serving(shown) as address, looking(browser, address) as seen:
        assert seen.page.locator("canvas:visible").count() == 0
        expect(seen.page.locator("#chart-accuracy .empty")).to_contain_text("after the first epoch")
        shown.now = training(2)
        expect(seen.page.locator("canvas:visible")).to_have_count(8)
        expect(seen.page.locator(".chart .empty:visible")).to_have_count(0)
        seen.looks_well()


def test_the_page_follows_to_the_next_job(browser: Browser) -> None:
    shown = Shown(estimating(2, state="done"))
    with serving(shown) as address, looking(browser, address) as seen:
        expect(seen.page.locator("h1")).to_have_text("pi on thesis")
        shown.now = training(2)
        expect(seen.page.locator("h1")).to_have_text("train on thesis")
        expect(seen.page.locator("#chart-loss canvas")).to_be_visible()


def test_a_lost_connection_is_said_and_mended(browser: Browser) -> None:
    shown = Shown(training(2))
    with ExitStack() as stack:
        address = stack.enter_context(serving(shown))
        with looking(browser, address) as seen:
            lost = seen.page.locator("#lost")
            expect(seen.page.locator("#head")).to_contain_text("running")
            expect(lost).to_have_text("")
            stack.close()
            expect(lost).not_to_have_text("", timeout=PATIENCE_MILLISECONDS)
            shown.now = replace(training(2), run="20991231T000000Z-train")
            with serving(shown, urlsplit(address).port or 0):
                expect(lost).to_have_text("", timeout=PATIENCE_MILLISECONDS)
                expect(seen.page.locator(".run")).to_contain_text("20991231T000000Z-train")


@pytest.mark.parametrize("lost_event", [False, True])
def test_a_job_that_is_done_is_no_fault(browser: Browser, lost_event: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if lost_event:
        monkeypatch.setattr(live, "CLOSING", "lost")
    done = replace(training(2), state="done")
    shown = Shown(training(2))
    with ExitStack() as stack:
        address = stack.enter_context(serving(shown))
        with looking(browser, address) as seen:
            shown.now = done
            expect(seen.page.locator("#head [data-state=done]")).to_be_visible()
            stack.close()
            lost = seen.page.locator("#lost")
            words = f"The job is done: its report is {done.run}/report.html"
            expect(lost).to_contain_text(words, timeout=PATIENCE_MILLISECONDS)
            expect(lost).not_to_contain_text("Connection lost")
            shown.now = replace(training(2), run="20991231T000000Z-train")
            with serving(shown, urlsplit(address).port or 0) as again:
                expect(lost).to_have_text("", timeout=PATIENCE_MILLISECONDS)
                assert again == address


@pytest.mark.parametrize(("width", "scheme"), SIZES, ids=SIZE_NAMES)
def test_reports_look_well(browser: Browser, tmp_path: Path, width: int, scheme: Scheme) -> None:
    shown = training()
    assert shown.confusion is not None
    tested = replace(shown.confusion, split="test", epoch=None)
    done = replace(shown, state="done", progress=None, confusion=tested, figures={"test": train_result()["final"]})
    result = train_result(workers=16)
    runs = [run_of(left(tmp_path / f"2026112{seed}T233535Z-train", train_result(seed))) for seed in range(3)]
    texts = {
        "train": report(Run(tmp_path, done, result, environment())),
        "pi": report(Run(tmp_path, estimating(state="done"), pi_result(16, 10**9, 14.0), environment())),
        "old": report(runs[0]),
        "several": comparison(runs),
    }
    for name, text in texts.items():
        path = tmp_path / f"{name}.html"
        path.write_text(text)
        with looking(browser, path.as_uri(), width, scheme) as seen:
            for summary in seen.page.locator("summary:visible").all():
                summary.click()
            seen.looks_well()


CUT = "all => all.filter(one => one.scrollHeight > one.clientHeight + 1).map(one => one.ariaLabel)"
"""Boxes that do not show all their rows."""
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
    texts = {
        "train": report(Run(tmp_path, long, train_result(), environment())),
        "pi": report(Run(tmp_path, estimating(state="done"), result, environment())),
    }
    for name, text in texts.items():
        path = tmp_path / f"{name}.html"
        path.write_text(text)
        with looking(browser, path.as_uri()) as seen:
            for width in (400, 480, 600, 760, 1000, 1280, 1600):
                seen.page.set_viewport_size({"width": width, "height": 900})
                assert seen.page.locator(".scroll:visible").evaluate_all(CUT) == [], width
                assert seen.page.locator(".tile strong").evaluate_all(BROKEN) == [], width
            seen.page.emulate_media(media="print")
            assert seen.page.locator(".scroll:visible").evaluate_all(CUT) == []
