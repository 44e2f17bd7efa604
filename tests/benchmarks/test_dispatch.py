"""The benchmark of the coordinator's CPU an update: what it sums up, and that its account counts a real process."""

import json
from pathlib import Path

import pytest

from benchmarks.coordinators.dispatch import SPENT_FILE, WARM_UP_UPDATES, Account
from benchmarks.dispatch import BARE, TRAINING, summarize
from cluster.status.events import StageBegan, Updated


def test_the_summary_is_the_median_round_of_each() -> None:
    rows = [
        {"what": what, "round": turn, "cpu_ms_an_update": value * factor, "updates_per_second": 100.0 * value}
        for what, factor in ((TRAINING, 1.0), (BARE, 0.5))
        for turn, value in enumerate((1.0, 2.0, 9.0))
    ]
    summary = summarize(rows)
    assert (summary["cpu_ms_an_update"], summary["cpu_ms_a_bare_call"]) == (2.0, 1.0)
    assert summary["updates_per_second"] == 200.0


def test_the_account_counts_from_the_end_of_the_warm_up_to_the_last_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SPENT_FILE, str(tmp_path / "spent.json"))
    account, total = Account(), WARM_UP_UPDATES + 50
    account.consume(StageBegan("train", total, "updates"))
    for number in range(total):
        account.consume(Updated(number, number + 1, total, 1.0, 0.1, 100.0))
        sum(range(20_000))
    found = json.loads((tmp_path / "spent.json").read_text())
    assert found["updates"] == 50
    assert found["cpu_ms_an_update"] > 0
    assert found["cpu_ms_an_update_by_thread"]["the caller's"] == pytest.approx(found["cpu_ms_an_update"], rel=0.5)
