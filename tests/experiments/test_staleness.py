"""`--quick` trains the network that the full benchmark trains, with fewer updates."""

import json
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from experiments import staleness


@pytest.mark.parametrize(
    ("flags", "updates"), [([], 222), (["--quick"], 60), (["--quick", "--updates", "7"], 7)]
)
def test_quick_has_fewer_updates_of_the_same_network(
    flags: list[str],
    updates: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked: list[tuple[float, int, int, int]] = []

    def trained(
        power: float, workers: int, hidden: int, count: int, recipe: Mapping[str, Any]
    ) -> dict[str, Any]:
        assert recipe == {}
        asked.append((power, workers, hidden, count))
        return {"staleness_power": power, "losses": [1.0]}

    # TensorFlow runs in this process already: its threads are set.
    monkeypatch.setattr(
        "tensorflow.config.threading.set_intra_op_parallelism_threads", lambda threads: None
    )
    monkeypatch.setattr(staleness, "trained", trained)
    monkeypatch.setattr(sys, "argv", ["staleness", "--json", *flags])
    staleness.main()
    assert asked == [(0.0, 16, 128, updates), (1.0, 16, 128, updates)]
    assert json.loads(capsys.readouterr().out)["summary"]["updates"] == updates
