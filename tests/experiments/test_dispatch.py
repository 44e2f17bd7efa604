"""The benchmark of the coordinator's CPU an update: what it sums up, and that its account counts a
real process."""

import json
from pathlib import Path

import pytest

from core.status.events import StageBegan, Updated
from experiments.coordinators.dispatch import SPENT_FILE, WARM_UP_UPDATES, Account


def test_the_account_counts_from_the_end_of_the_warm_up_to_the_last_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SPENT_FILE, str(tmp_path / "spent.json"))
    account = Account()
    total = WARM_UP_UPDATES + 50
    account.consume(StageBegan("train", total, "updates"))
    for number in range(total):
        account.consume(Updated(number, number + 1, total, 1.0, 0.1, 100.0))
        sum(range(20_000))
    found = json.loads((tmp_path / "spent.json").read_text())
    assert found["updates"] == 50
    assert found["cpu_ms_an_update"] > 0
    assert found["cpu_ms_an_update_by_thread"]["the caller's"] == pytest.approx(
        found["cpu_ms_an_update"], rel=0.5
    )
