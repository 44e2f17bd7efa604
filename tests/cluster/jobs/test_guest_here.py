"""A training here whose app changes process-wide state: all lands where it belongs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from core.inventory.templates import local_inventory
from tests.hang import HANG_SECONDS

PROJECT = Path(__file__).resolve().parents[3]
APP = """
import os
os.chdir(os.path.dirname(__file__))
import keras, numpy as np, tensorflow as tf
print("hello")
tf.config.experimental.enable_op_determinism()
tf.debugging.enable_check_numerics()

def model(input_shape, outputs):
    return keras.Sequential([keras.Input(input_shape), keras.layers.Dense(outputs)])

def data(folder):
    x = np.load("x.npy")
    np.save(folder / "written.npy", x)
    y = (x[:, 0] > 0).astype(int)
    return {"x_train": x[:200], "y_train": y[:200], "x_test": x[200:], "y_test": y[200:]}
"""
SETTINGS = ("mode=single", "epochs=1", "validation_subjects=0", "app=mine")


@pytest.mark.long
def test_a_run_lands_where_it_was_begun(tmp_path: Path) -> None:
    import numpy as np

    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "app.py").write_text(APP)
    np.save(
        tmp_path / "mine" / "x.npy",
        np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32),
    )
    (tmp_path / "inventory.yaml").write_text(local_inventory(1, 1) + "page: {listen: 'off'}\n")
    words = [sys.executable, "-m", "cluster", "train", "--inventory", "inventory.yaml", "--json"]
    for setting in SETTINGS:
        words += ["--set", f"jobs.train.{setting}"]
    environment = {
        **os.environ,
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "PYTHONPATH": str(PROJECT),
        "PYTHONSAFEPATH": "1",
    }
    done = subprocess.run(
        words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=HANG_SECONDS
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    (run,) = (tmp_path / "runs").iterdir()
    assert (tmp_path / result["result_path"]).samefile(run / "result.json")
    assert sorted(path.name for path in (tmp_path / "mine").iterdir()) == [
        "app.py",
        "written.npy",
        "x.npy",
    ]
    assert "enable_op_determinism: it holds for the whole process, so it is put back" in done.stderr
