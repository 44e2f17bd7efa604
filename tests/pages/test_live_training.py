"""The page of a real training: it changes, shows a killed worker, outlives a coordinator that is brought back."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.jobs.cluster import SMALL, Cluster, cluster_of, own_recordings
from tests.pages.browser import chromium, looking

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

PATIENCE_MILLISECONDS = 60_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with cluster_of(workers=2) as running:
        own_recordings(running.folder / "mine.npz", train=2000)
        yield running


def settings(cluster: Cluster) -> tuple[str, ...]:
    return (f"jobs.train.data.source={cluster.folder / 'mine.npz'}", *SMALL, "jobs.train.epochs=400",
            "jobs.train.checkpoint.every_seconds=1")  # fmt: skip


def address(cluster: Cluster) -> str:
    return f"http://127.0.0.1:{cluster.inventory.task('coordinator', 0).page_port}/"


def test_the_page_of_a_real_training(cluster: Cluster, browser: Browser) -> None:
    with cluster.begun("train", *settings(cluster)) as job:
        job.until("live page: ")
        with looking(browser, address(cluster)) as seen:
            page = seen.page
            expect(page.locator("#head")).to_contain_text("updates", timeout=PATIENCE_MILLISECONDS)
            expect(page.locator("#chart-accuracy canvas")).to_be_visible(timeout=PATIENCE_MILLISECONDS)
            run = page.locator(".run code").inner_text()
            before = page.locator(".done").inner_text()
            expect(page.locator(".done")).not_to_have_text(before)
            expect(page.locator("#chart-speeds canvas")).to_be_visible(timeout=PATIENCE_MILLISECONDS)
            seen.looks_well()

            cluster.kill("worker:1")
            role = page.locator(".role", has=page.locator("b", has_text="worker:1"))
            expect(role.locator(".state")).to_contain_text("away", timeout=PATIENCE_MILLISECONDS)
            expect(page.locator(".log")).to_contain_text("worker:1")
            assert seen.wrongs == []

            folder = job.kill()
            expect(page.locator("#lost")).to_contain_text("Connection lost", timeout=PATIENCE_MILLISECONDS)
            points = page.evaluate("document.querySelectorAll('#chart-loss tbody tr').length")
            cluster.start("worker:1")
            with cluster.begun("train", *settings(cluster), resumed=folder) as again:
                again.until("live page: ")
                expect(page.locator("#lost")).to_have_text("", timeout=PATIENCE_MILLISECONDS)
                expect(page.locator(".run code")).to_have_text(run)
                expect(page.locator(".log")).to_contain_text("resumed", timeout=PATIENCE_MILLISECONDS)
                before = page.locator(".done").inner_text()
                expect(page.locator(".done")).not_to_have_text(before, timeout=PATIENCE_MILLISECONDS)
                assert page.evaluate("document.querySelectorAll('#chart-loss tbody tr').length") >= points
                again.interrupt()
                done = again.end()
            assert done.code == 130
            assert (folder / "report.html").is_file(), done.errors
            expect(page.locator("#lost")).not_to_have_text("", timeout=PATIENCE_MILLISECONDS)
        with looking(browser, (folder / "report.html").as_uri(), 1600) as report:
            expect(report.page.locator("canvas:visible").first).to_be_visible()
            report.looks_well()
