"""`experiments.recognise`: what it sums up, the day that it invents, and one quick run over real
roles."""

import json
from pathlib import Path

import numpy as np
import pytest

from experiments.recognise import ALONE, HZ, POSTURE_SECONDS, TOGETHER, record
from tests.ran import python


def test_the_day_is_a_recording_at_rest_but_for_every_third_posture(tmp_path: Path) -> None:
    record(tmp_path / "day.npz", 2 * POSTURE_SECONDS)
    with np.load(tmp_path / "day.npz") as found:
        assert {name: found[name].shape for name in found} == {
            "times": (2 * POSTURE_SECONDS * HZ,),
            "rotation": (2 * POSTURE_SECONDS * HZ, 3),
            "acceleration": (2 * POSTURE_SECONDS * HZ, 3),
        }
        assert set(np.round(np.diff(found["times"]), 6)) == {1 / HZ}
        halves = np.split(found["acceleration"], 2)
    assert halves[0].std(axis=0).mean() > 0.2
    assert halves[1].std(axis=0).mean() < 0.05
    for half in halves:
        assert np.linalg.norm(half.mean(axis=0)) == pytest.approx(1, abs=0.02)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_one_process_and_two_workers_write_the_same_bytes() -> None:
    found = json.loads(python("-m", "experiments.recognise", "--quick", "--json"))
    assert [row["what"] for row in found["rows"]] == [ALONE, TOGETHER]
    assert all(row["windows"] > 1000 and row["windows_per_second"] > 0 for row in found["rows"])
    assert found["summary"]["same_bytes"]
