"""KTH's comparison: pieces that go on, curves by updates, what is missing; the gradients'
arithmetic."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.data.synthetic_hhar import write_hhar
from core.models.kth import KthModel
from core.models.network import build
from experiments import kth
from experiments.kth import VARIANTS, Bench, at, curve_of, epochs_of, rows, summary
from experiments.kth_gradients import _OPTIMIZERS, saturated

RESULT: dict[str, Any] = {
    "status": "done",
    "reason": None,
    "epochs_done": 2,
    "updates": {"scheduled": 20},
    "final": {"accuracy": 0.7},
    "selected": {"epoch": 2},
    "staleness": {"mean": 0.0},
    "parameters_sha256": "ab",
    "dataset": {"train_windows": 160, "test_windows": 40, "held_out": {"by": "window"}},
}


def epoch(number: int, accuracy: float) -> str:
    event = {"event": "epoch", "stage": "train", "epoch": number, "windows_per_second": 32.0}
    return json.dumps({**event, "validation": {"accuracy": accuracy}, "loss": 1.0}) + "\n"


def test_an_epoch_that_is_trained_again_counts_once(tmp_path: Path) -> None:
    history = tmp_path / "history.jsonl"
    again = epoch(1, 0.5) + epoch(2, 0.1) + epoch(2, 0.65)
    history.write_text('{"event": "began"}\n' + again + '{"ev')
    curve = curve_of(epochs_of(history), 10)
    assert curve == [
        {"updates": 10, "seconds": 5.0, "accuracy": 0.5, "loss": 1.0},
        {"updates": 20, "seconds": 10.0, "accuracy": 0.65, "loss": 1.0},
    ]
    assert at(curve, 11) == curve[1]
    assert at(curve, 21) is None
    assert curve_of(epochs_of(tmp_path / "none"), 1) == []


class Played:
    """A cluster whose training is killed the first time and done the second."""

    def __init__(self) -> None:
        self.flags: list[list[str]] = []
        self.processes: dict[str, Any] = {}

    def coordinate(
        self, module: str, names: list[str], flags: list[str], *_: Any, **__: Any
    ) -> None:
        self.flags.append(flags)
        (runs,) = (Path(flag.removeprefix("runs=")) for flag in flags if flag.startswith("runs="))
        run = runs / "20261123T120000Z-train"
        run.mkdir(exist_ok=True)
        (run / "coordinator.log").touch()
        (run / "history.jsonl").write_text(epoch(1, 0.5) + epoch(2, 0.7))
        if "--resume" not in flags:
            raise RuntimeError("cluster train was not done after 560 s")
        (run / "result.json").write_text(json.dumps(RESULT))


def test_a_row_is_trained_in_pieces_and_then_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    played = Played()

    @contextmanager
    def cluster(workers: int, servers: int) -> Iterator[Played]:
        yield played

    monkeypatch.setattr(kth, "local_cluster", cluster)
    data = tmp_path / "Phones_accelerometer.csv"
    write_hhar(data, people=5, devices=2, seconds=3.0)
    bench = Bench(tmp_path, data, (2, 10**6), time.monotonic() + 60)
    assert list(rows(bench)) == []
    for _ in range(3):
        kth.advance(bench, VARIANTS[0], "people", 10**6)
    assert ["--resume" in flags for flags in played.flags] == [False, True]
    (row,) = rows(bench)
    expected = {"split": "people", "variant": "one process", "pieces": 2, "data": "invented"}
    assert {key: row[key] for key in expected} == expected
    assert (row["at"]["2"]["accuracy"], row["at"][str(10**6)]) == (0.5, None)
    reached = {"0.60": 2 * bench.per_epoch("people"), "0.90": None}
    assert {accuracy: row["updates_to"][accuracy] for accuracy in reached} == reached
    assert "people: one process" in summary(bench, [row])["not_at_the_last_mark"]
    assert "jobs.train.data.split=groups" in played.flags[0]
    other = Bench(tmp_path, data, (2,), time.monotonic() + 60)
    assert summary(other, list(rows(other)))["not_at_the_last_mark"][-5:] == [
        "random: sync at their rate",
        *(f"people: {variant.name}" for variant in VARIANTS[1:]),
    ]


def test_the_first_step_of_adam_has_the_rates_length_whatever_the_gradient() -> None:
    slope = np.random.default_rng(0).normal(0, 1e-3, 66_759).astype(np.float32)
    adam, sgd = (np.linalg.norm(_OPTIMIZERS[name]()(slope, 0.5, 1)) for name in ("adam", "sgd"))
    assert adam == pytest.approx(0.5 * np.sqrt(66_759), rel=1e-3)
    assert sgd == pytest.approx(0.5 * np.linalg.norm(slope))


def test_gates_at_their_ends_are_counted() -> None:
    network = build(KthModel(hidden=8), window_steps=12, channels=3, classes=7)
    windows = np.random.default_rng(1).normal(0, 1, (4, 12, 3)).astype(np.float32)
    assert saturated(network, network.initial(0), windows) < 0.05
    assert saturated(network, network.initial(0) * np.float32(1000), windows) > 0.5
