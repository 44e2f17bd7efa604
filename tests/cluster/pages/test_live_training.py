"""The page of a real training: it shows a killed worker, and outlives a coordinator."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.jobs.cluster import SMALL, Cluster, Running, cluster_of, own_recordings
from tests.cluster.pages.browser import chromium, looking
from tests.lazy import Browser, Page, expect

pytestmark = pytest.mark.long

PATIENCE_MILLISECONDS = 60_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import expect  # the lazy one has no options

    expect.set_options(timeout=PATIENCE_MILLISECONDS)
    with chromium() as running:
        yield running
    expect.set_options(timeout=5_000)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with cluster_of(workers=2) as running:
        own_recordings(running.folder / "mine.npz", train=2000)
        yield running


@contextmanager
def trained(cluster: Cluster, resumed: Path | None = None) -> Iterator[Running]:
    """A training that serves its page."""
    settings = (
        f"jobs.train.data.source={cluster.folder / 'mine.npz'}",
        *SMALL,
        "jobs.train.epochs=100000",
        "jobs.train.checkpoint.every_seconds=1",
    )
    with cluster.begun("train", *settings, resumed=resumed) as job:
        job.until("live page: ")
        yield job


def goes_on(page: Page) -> None:
    done = page.locator(".done")
    expect(done).not_to_have_text(done.inner_text())


def test_the_page_of_a_real_training(cluster: Cluster, browser: Browser) -> None:
    port = cluster.inventory.task("coordinator", 0).page_port
    with (
        trained(cluster) as job,
        looking(browser, f"http://127.0.0.1:{port}/") as seen,
    ):
        page = seen.page
        lost = page.locator("#lost")
        rows = page.locator("#chart-loss tbody tr")
        expect(page.locator("#head")).to_contain_text("updates")
        expect(page.locator("#chart-accuracy canvas")).to_be_visible()
        run = page.locator(".run code").inner_text()
        goes_on(page)
        expect(page.locator("#chart-speeds canvas")).to_be_visible()
        seen.looks_well()

        cluster.kill("worker:1")
        role = page.locator(".role", has=page.locator("b", has_text="worker:1"))
        expect(role.locator(".state")).to_contain_text("away")
        expect(page.locator(".log")).to_contain_text("worker:1")
        assert seen.wrongs == []

        folder = job.kill()
        expect(lost).to_contain_text("Connection lost")
        points = rows.count()
        cluster.start("worker:1")
        with trained(cluster, folder) as again:
            expect(lost).to_have_text("")
            expect(page.locator(".run code")).to_have_text(run)
            expect(page.locator(".log")).to_contain_text("resumed")
            goes_on(page)
            assert rows.count() >= points
            again.interrupt()
            done = again.end()
        assert done.code == 130
        assert (folder / "report.html").is_file(), done.errors
        expect(lost).not_to_have_text("")
    with looking(browser, (folder / "report.html").as_uri(), 1600) as report:
        expect(report.page.locator("canvas:visible").first).to_be_visible()
        report.looks_well()
