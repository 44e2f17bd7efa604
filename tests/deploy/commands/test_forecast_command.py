"""`fab forecast`: its numbers of nodes, and what it asks the forecast for."""

import json
from pathlib import Path

import pytest

from cluster.forecast.costs import add_costs
from deploy.commands import forecasts
from deploy.commands.forecasts import counts_of
from tests.cluster.forecast.played import costs
from tests.deploy.typed import Fab


@pytest.mark.parametrize(
    ("value", "counts"),
    [
        ("16..10000", [16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 10_000]),
        ("8, 3,3", [3, 8]),
        ("4..4", [4]),
        ("1..4,1e3", [1, 2, 4, 1000]),
    ],
)
def test_numbers_of_nodes(value: str, counts: list[int]) -> None:
    assert counts_of("--nodes", value) == counts


def test_the_inventory_names_what_the_flags_do_not(
    tmp_path: Path, fab: Fab, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    monkeypatch.setattr(forecasts, "run_module", lambda _, text: asked.append(json.loads(text)))
    add_costs(tmp_path / "costs.json", costs("sync"))
    add_costs(tmp_path / "costs.json", costs())
    add_costs(tmp_path / "hybrid.json", costs("sync", app="hybrid"))
    fab("forecast --nodes 3 --price 1")
    fab("init --local --ps 3 --out mine.yaml")
    fab("forecast --inventory mine.yaml --mode sync --costs hybrid.json")
    fab("forecast --inventory mine.yaml --mode sync").refuses("no costs of hybrid sync fp32")
    fab("forecast --inventory mine.yaml --mode sync --app digits")
    first, second, third = asked
    assert (first["entry"], first["servers"], first["nodes"]) == ([None, None, None], None, [3])
    assert (first["assumed"]["price"], first["assumed"]["link"]) == (1.0, 300.0)
    assert (second["entry"], second["servers"]) == (["hybrid", "sync", "fp32"], 3)
    assert third["entry"] == ["digits", "sync", "fp32"]
    fab("forecast --mode local").refuses("no costs of local, only of: digits sync fp32; digits")
