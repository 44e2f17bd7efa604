"""What the benchmark over emulated Pis makes of its rounds."""

from typing import Any

from benchmarks.pis import MILLIONS, cut, summarize


def row(job: str, workers: int, speed: float) -> dict[str, Any]:
    seconds = {str(millions): millions * 1e6 / speed for millions in MILLIONS}
    more = {"seconds_to_million_points": seconds} if job == "pi" else {}
    return {"job": job, "workers": workers, "per_second": speed, **more}


def test_what_is_published_are_medians_over_the_rounds_and_shares_of_the_first_count() -> None:
    rows = [row("train", 1, speed) for speed in (100.0, 160.0, 150.0)]
    rows += [row("train", 8, speed) for speed in (900.0, 1080.0, 1200.0)]
    rows += [row("pi", 1, 2e7), row("pi", 8, 1.6e8)]
    found = summarize(rows)
    assert found["train"] == {"per_second": {"1": 150.0, "8": 1080.0}, "efficiency": {"1": 1.0, "8": 0.9}}
    assert found["pi"]["efficiency"] == {"1": 1.0, "8": 1.0}
    assert found["pi"]["seconds_to_million_points"]["1"]["1000"] == 50.0


def test_a_count_other_than_one_may_come_first() -> None:
    assert summarize([row("train", 2, 300.0), row("train", 4, 540.0)])["train"]["efficiency"] == {"2": 1.0, "4": 0.9}


def test_the_first_workers_are_kept_and_every_other_role() -> None:
    nodes = [{"name": "a", "roles": ["worker"]}, {"name": "b", "roles": ["worker"]}]
    inventory = {"nodes": [*nodes, {"name": "c", "roles": ["ps", "worker"]}]}
    assert [(node["name"], node["roles"]) for node in cut(inventory, 1)["nodes"]] == [("a", ["worker"]), ("c", ["ps"])]
    assert cut(inventory, 3) == inventory
