"""Functions and arrays are trained on a real cluster on this machine.

What goes wrong is one exception each.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pscluster

pytestmark = pytest.mark.long

_DRAWN = np.random.default_rng(7).normal(size=(240, 6)).astype(np.float32)
_POSITIVE = (_DRAWN.sum(axis=1) > 0).astype(np.int64)
DATA = pscluster.Data(_DRAWN[:200], _POSITIVE[:200], _DRAWN[200:], _POSITIVE[200:])


def network(input_shape: Any, outputs: int) -> Any:
    import keras

    return keras.Sequential([keras.Input(input_shape), keras.layers.Dense(outputs)])


def share(y: Any, outputs: Any) -> Any:
    import tensorflow

    right = tensorflow.equal(
        tensorflow.argmax(outputs, axis=1), tensorflow.cast(y, tensorflow.int64)
    )
    return {"share": tensorflow.cast(right, tensorflow.float32)}


class Lines(list[str]):
    """Progress, and what is done about a line of it."""

    interrupt_at: str | None = None

    def __call__(self, line: str) -> None:
        self.append(line)
        if self.interrupt_at is not None and self.interrupt_at in line:
            self.interrupt_at = None
            os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    made = tmp_path_factory.mktemp("work")
    (made / "runs").mkdir()  # the folder of all runs stays for the whole module
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made)
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield made


@pytest.fixture(scope="module")
def lines() -> Lines:
    return Lines()


@pytest.fixture(scope="module")
def cluster(folder: Path, lines: Lines) -> Iterator[pscluster.Cluster]:
    with pscluster.local(workers=1, report=lines) as running:
        yield running
    assert not running.inventory.exists()


def test_a_function_and_arrays(cluster: pscluster.Cluster, folder: Path) -> None:
    run = cluster.train(network, DATA, mode="sync", epochs=2, batch_size=40, metrics=share)
    assert run.result["status"] == "done"
    assert [epoch["epoch"] for epoch in run.history] == [1, 2]
    assert run.result["final"]["share"] == pytest.approx(run.result["final"]["accuracy"])
    answers = run.model.predict(DATA.x_test, verbose=0).argmax(axis=1)
    assert (answers == DATA.y_test).mean() == pytest.approx(run.result["final"]["accuracy"])
    assert (folder / run.folder / "app" / "app.py").read_text().count("def network") == 1


def test_ctrl_c_leaves_the_result_so_far(cluster: pscluster.Cluster, lines: Lines) -> None:
    lines.interrupt_at = "train: epoch   1/"
    with pytest.raises(pscluster.Cancelled) as raised:
        cluster.train(network, DATA, mode="sync", epochs=100_000, batch_size=40)
    assert str(raised.value) == lines[-1]
    run = raised.value.run
    assert run is not None
    assert run.result["status"] == "cancelled"
    assert run.history
    assert run.result["final"]["loss"] > 0
    assert (Path(run.folder) / "model" / "model.json").is_file()
    assert cluster.status()["state"] == "running"
