from typing import Any

from benchmarks.sweep import SWEEP, summarize
from cluster.sweeps.sweep_file import read_text


def row(workers: int, speed: float) -> dict[str, Any]:
    return {"workers": workers, "runs_per_hour": speed, "busy": 0.99}


def test_the_efficiency_is_all_workers_over_so_many_times_one() -> None:
    rows = [row(1, 100.0), row(4, 380.0), row(1, 120.0), row(4, 480.0), row(1, 80.0), row(4, 304.0)]
    assert summarize(rows, 4) == {
        "runs_per_hour": {"1": 100.0, "4": 380.0},
        "busy": 0.99,
        "efficiency": 0.95,
        "efficiency_of_rounds": [0.95, 1.0, 0.95],
    }


def test_its_file_is_a_sweep() -> None:
    assert read_text(SWEEP.format(epochs=2, seeds=[0, 1, 2]), "s.yaml").run_count == 3
