"""`pi` as a user runs it, and what every job says when the cluster is not as it should be."""

import json
from math import pi
from typing import Any

import pytest

from tests.cluster.conftest import Pool
from tests.cluster.jobs.cluster import Cluster, Done

SETTINGS = ("jobs.pi.samples=6000001", "jobs.pi.chunk_samples=400000", "jobs.pi.seed=4")


@pytest.fixture(scope="module")
def counted(clusters: Pool) -> Done:
    return clusters(2, 1).job("pi", *SETTINGS, code=0)


def is_near(result: dict[str, Any]) -> bool:
    return abs(float(result["estimate"]) - pi) < 5 * float(result["standard_error"])


def test_the_estimate_is_within_five_standard_errors(counted: Done) -> None:
    result = counted.result
    assert result["status"] == "done"
    assert result["samples"] == result["planned_samples"] == 6_000_001
    assert result["estimate"] == pytest.approx(4 * result["inside"] / 6_000_001)
    assert is_near(result)
    assert result["standard_error"] == pytest.approx((pi * (4 - pi) / 6_000_001) ** 0.5, rel=0.01)


def test_the_calibration_is_kept(cluster: Cluster, counted: Done) -> None:
    kept = json.loads((cluster.runs / f"calibration-{cluster.inventory.cluster}.json").read_text())
    speeds = kept["samples_per_second"]
    assert speeds == counted.result["samples_per_second"]
    assert set() < set(speeds) <= {"worker:0", "worker:1"}
    assert min(speeds.values()) > 0
