"""The report of a recognition in a browser: the labels over time, and the totals."""

from pathlib import Path

import pytest

from cluster.jobs import session
from cluster.jobs.recognise import RecogniseRun
from tests.cluster.jobs.kit import conducted
from tests.cluster.jobs.test_recognise_here import described, recorded, trained
from tests.cluster.pages.browser import chromium, looking


# as all that starts a browser: Playwright's Node needs libatomic, which a bare machine lacks
@pytest.mark.long
def test_the_day_is_drawn_and_told_at_every_width(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "one_thread_an_operation", lambda: None)
    trained(tmp_path / "run")
    recorded(tmp_path / "day.npz")
    run, result = conducted(RecogniseRun, described(tmp_path), tmp_path)
    address = (run / "report.html").as_uri()
    with chromium() as browser:
        for width, scheme in ((1280, "light"), (360, "dark")):
            with looking(browser, address, width, scheme) as seen:  # type: ignore[arg-type]
                seen.looks_well()
                day = seen.page.locator("#chart-day")
                assert day.locator("canvas").is_visible()
                day.locator("summary").click()
                day.locator("thead").wait_for(state="visible")
                assert day.locator("tbody tr").count() == len(result["band"])
                assert day.locator("thead").inner_text().split()[:2] == ["label", "recognised"]
                totals = seen.page.locator("section[aria-labelledby=totals-name]")
                assert totals.locator("tbody tr").count() == 3
                assert "no reading for 2.020 s" in totals.inner_text()
