"""`fab app` as a person types it."""

from pathlib import Path

import pytest

from tests.deploy.typed import Fab, Outcome


def test_a_new_app_and_the_next_commands(tmp_path: Path, fab: Fab) -> None:
    assert fab("app new mine --template tabular") == Outcome(
        0,
        "wrote mine/: README.md, app.py, test_app.py\nnext: fab init --local --out"
        " inventory.yaml; fab app check mine; fab job train --app mine --mode single\n",
        "",
    )
    (tmp_path / "inventory.yaml").write_text("")
    fab("app new other").says(
        "next: fab app check other; fab job train --app other --mode single\n"
    )
    fab("app new mine").refuses("mine: exists already: choose another name, or remove it\n")


SMALL = """
import keras

task = "regression"

print("imported")

def model(input_shape, outputs):
    layers = [keras.layers.Dense(4), keras.layers.Dense(outputs)]
    return keras.Sequential([keras.Input(input_shape), *layers])

def data(folder):
    import numpy as np
    x = np.random.default_rng(0).random((60, 3), "float32")
    return {"x_train": x, "y_train": x[:, 0], "x_test": x, "y_test": x[:, 0]}
"""


@pytest.mark.long
def test_an_app_is_measured_and_its_mistakes_are_a_line(tmp_path: Path, fab: Fab) -> None:
    app = tmp_path / "small.py"
    app.write_text(SMALL)
    found = fab("app check small.py --json --mode sync --codec fp16").json()
    assert (found["parameters"], found["outputs"], found["input_shape"]) == (4 * 4 + 5, 1, [3])
    assert (found["mode"], found["codec"]) == ("sync", "fp16")
    assert found["bytes_a_step"] == 2 * 4 * (11 + 1), "21 halves in 11 words and a scale, both ways"
    assert found["memory"][0]["fits"] is True
    assert 0 < found["step_seconds"] < found["first_loss_seconds"]

    app.write_text(SMALL.replace("Dense(outputs)", "Dense(outputs, colour=1)"))
    fab("app check small.py").refuses("small.py:9: model() failed: ")
