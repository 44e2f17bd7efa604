"""Measured costs: how they are fitted, and the file that holds them."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from cluster.forecast.costs import Line, add_costs, entry_of, fitted, read_costs
from core.ground.errors import UsageError
from tests.cluster.forecast.played import costs


def test_a_line_has_no_negative_part() -> None:
    assert Line.through([(1, 3.0), (2, 5.0), (4, 9.0)]) == Line(1.0, 2.0)
    assert Line.through([(1, 3.0)]) == Line(3.0, 0.0), "one run says nothing of growth"
    assert Line.through([(1, 5.0), (2, 3.0)]) == Line(4.0, 0.0)
    assert Line.through([(1, 1.0), (2, 3.0)]) == Line(0.0, 1.4)


def test_costs_are_fitted_by_role() -> None:
    fit = fitted(costs())
    assert (fit.coordinator.base, fit.coordinator.slope) == pytest.approx((0.002, 0.001))
    assert (fit.server.base, fit.server.slope) == pytest.approx((0.001, 0.001))
    assert fit.compute == pytest.approx(0.1)
    assert (fit.call, fit.largest) == (0.0, 4)
    assert (fit.pull_bytes, fit.push_bytes) == (10_000.0, 20_000.0)
    assert fitted(costs(), largest=2).largest == 2


def test_a_step_in_parts_costs_by_its_calls() -> None:
    measured = costs("sync")
    assert [measured.scale(run) for run in measured.runs] == [1.0, 2.0, 4.0], "by bytes"
    often = replace(measured.runs[1], sent_bytes=3 * measured.runs[0].sent_bytes)
    assert measured.scale(often) == 3.0
    grown = tuple(replace(run, worker_seconds=8.0 + 2.0 * run.workers) for run in measured.runs)
    fit = fitted(replace(measured, runs=grown))
    assert (fit.call, fit.compute) == pytest.approx((0.02, 0.08)), "a fifth is for the call"


def test_a_file_has_one_entry_for_each_app_mode_and_codec(tmp_path: Path) -> None:
    file = tmp_path / "costs.json"
    add_costs(file, costs())
    add_costs(file, costs("sync"))
    again = costs(single_seconds=0.3)
    add_costs(file, again)
    assert read_costs(file) == (costs("sync"), again)
    assert entry_of(file, None, None, None) == again
    assert entry_of(file, "digits", "sync", "fp32") == costs("sync")
    add_costs(file, costs(app="mine"))
    with pytest.raises(UsageError, match="has costs of digits, mine: name one with --app"):
        entry_of(file, None, "async", None)
    assert entry_of(file, "digits", "async", None) == again
    with pytest.raises(UsageError, match="no costs of local, only of: digits sync fp32; digits"):
        entry_of(file, None, "local", None)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"mode": "quick"}, "'quick' is no mode on roles"),
        ({"mode": "single"}, "'single' is no mode on roles"),
        ({"runs": []}, "0.runs"),
        ({"runs": [{**asdict(costs().runs[1])}]}, "expected one of one worker"),
        ({"cores": 0}, "0.cores"),
        ({"runs": [{**asdict(costs().runs[0]), "spread": float("nan")}]}, "0.runs.0.spread"),
        ({"epochs": "two"}, "0.epochs"),
        ({"mode": "ssp", "options": {"bound": "wide"}}, "options.bound"),
        ({"runs": [{**asdict(costs().runs[0]), "slots": 129}]}, "0.runs.0.slots"),
        ({"runs": [{**asdict(costs().runs[0]), "seconds": 2e6}]}, "0.runs.0.seconds"),
        ({"runs": [{**asdict(costs().runs[0]), "server_seconds": 2e6}]}, "server_seconds"),
    ],
)
def test_another_entry_is_refused_by_name(
    tmp_path: Path, changes: dict[str, Any], why: str
) -> None:
    file = tmp_path / "costs.json"
    file.write_text(json.dumps({"schema": 1, "measured": [{**asdict(costs()), **changes}]}))
    with pytest.raises(UsageError, match=rf"^[^\n]*costs\.json: no file of costs: [^\n]*{why}"):
        read_costs(file)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": 2, "measured": []}'])
def test_another_file_is_refused_and_stays(tmp_path: Path, text: str) -> None:
    file = tmp_path / "costs.json"
    file.write_text(text)
    with pytest.raises(UsageError, match="no file of costs"):
        add_costs(file, costs())
    assert file.read_text() == text
    with pytest.raises(UsageError, match=r"no costs.*`fab app check APP --out FILE`"):
        read_costs(tmp_path / "gone.json")
    with pytest.raises(UsageError, match="its folder does not exist"):
        add_costs(tmp_path / "gone" / "costs.json", costs())
