"""What `--quick` leaves out of the modes' benchmark: epochs and seeds, never a mode."""

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from experiments import modes
from experiments.modes import VARIANTS, plan


def given(**values: Any) -> argparse.Namespace:
    return argparse.Namespace(**{"quick": False, "epochs": None, "seeds": None, **values})


def test_quick_has_fewer_epochs_and_seeds() -> None:
    assert plan(given()) == (20, (0, 1, 2))
    assert plan(given(quick=True)) == (1, (0,))
    assert plan(given(quick=True, epochs=3, seeds=[5])) == (3, [5])


class Asked:
    """A cluster that answers every job at once and keeps what it was asked."""

    def __init__(self) -> None:
        self.settings: list[list[str]] = []

    def job(self, name: str, settings: list[str]) -> dict[str, Any]:
        self.settings.append(settings)
        return {
            "wire": {"pull_bytes_per_step": None, "push_bytes_per_step": None},
            "epochs_done": 1,
            "dataset": {"train_windows": 200, "name": "noise"},
            "updates": {"scheduled": 2},
            "final": {"accuracy": 0.5, "f1_macro": 0.5},
            "throughput": {"windows_per_second": 10.0},
            "staleness": None,
            "parameters_sha256": "",
            "elapsed_seconds": 1.0,
        }


def test_quick_trains_every_variant(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = Asked()

    @contextmanager
    def cluster(workers: int, servers: int) -> Iterator[Asked]:
        yield asked

    monkeypatch.setattr(modes, "local_cluster", cluster)
    monkeypatch.setattr(sys, "argv", ["modes", "--quick", "--json"])
    modes.main()
    summary = json.loads(capsys.readouterr().out)["summary"]
    assert list(summary["variants"]) == list(VARIANTS)
    assert len(asked.settings) == len(VARIANTS)
    assert all("jobs.train.epochs=1" in settings for settings in asked.settings)
