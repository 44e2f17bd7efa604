"""How far a run is, for the process that drives it."""

import json
from statistics import NormalDist
from typing import Any

import pytest

from cluster.sweeps.member import MemberReport
from core.status.events import Stepped, Updated


def spread_after(calls: list[tuple[float, int]], capsys: pytest.CaptureFixture[str]) -> float:
    """What the report says after calls of so many seconds an update and so many updates."""
    report = MemberReport()
    for seconds, updates in calls:
        for _ in range(updates):
            report.consume(Stepped(0, 10, 0.0, seconds, {}))
    report.consume(Updated(0, 1, 1, 1.0, 0.1, 1.0))
    (line,) = capsys.readouterr().out.splitlines()
    (content,) = json.loads(line).values()
    found: Any = content["spread"]
    return float(found)


def test_the_mean_of_a_call_spreads_by_the_root_of_its_updates_less(
    capsys: pytest.CaptureFixture[str],
) -> None:
    seconds = [1.0 + NormalDist(0.0, 0.1).inv_cdf((k + 0.5) / 8) for k in range(8)]
    alone = spread_after([(each, 1) for each in seconds], capsys)
    assert alone == pytest.approx(0.1, rel=0.25)
    assert spread_after([(each, 4) for each in seconds], capsys) == pytest.approx(2 * alone)
    assert spread_after([(each, 1) for each in seconds[:7]], capsys) == 0.0, "too few"
