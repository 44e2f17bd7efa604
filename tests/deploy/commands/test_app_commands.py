"""`fab app` as a person types it."""

import json
from pathlib import Path

import pytest

from tests.deploy.typed import Fab


def test_a_new_app_and_the_next_commands(tmp_path: Path, fab: Fab) -> None:
    made = fab("app new mine --template tabular")
    assert (made.code, made.stderr) == (0, "")
    assert made.stdout == (
        "wrote mine/: README.md, app.py, test_app.py\n"
        "next: fab init --local --out inventory.yaml; fab app check mine; fab job train --app mine --mode single\n"
    )
    (tmp_path / "inventory.yaml").write_text("")
    assert fab("app new other").stdout.endswith("next: fab app check other; fab job train --app other --mode single\n")
    again = fab("app new mine")
    assert (again.code, again.stderr) == (2, "mine: exists already: choose another name, or remove it\n")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("app new a/b", "'a/b': expected a name of letters, digits, - and _"),
        ("app new mine --template kears", "--template: unknown template 'kears': did you mean keras?\n"),
        ("app new mine --link 3", "app new: does not take --link"),
        ("app new", "did not receive required positional arguments: 'name'"),
        ("app dance mine", "app: no action 'dance'; there are new, check"),
        ("app check gone", "gone: expected a Python file or a folder with app.py, found nothing there\n"),
        ("app check . ", "expected app.py in the folder of an app, found none: `fab app new` writes one\n"),
        ("app check mine --link fast", "--link: expected Mbit/s above 0, at most 1,000,000, such as 300, got 'fast'\n"),
        ("app check mine --link nan", "--link: expected Mbit/s above 0"),
        ("app check mine --mode quick", "jobs.train.mode"),
    ],
)
def test_what_cannot_be_done_is_a_line(tmp_path: Path, fab: Fab, line: str, words: str) -> None:
    refused = fab(line)
    assert refused.code != 0
    assert words in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not list(tmp_path.iterdir())


SMALL = """
import keras

task = "regression"

print("imported")

def model(input_shape, outputs):
    return keras.Sequential([keras.Input(input_shape), keras.layers.Dense(4), keras.layers.Dense(outputs)])

def data(folder):
    import numpy as np
    x = np.random.default_rng(0).random((60, 3), "float32")
    return {"x_train": x, "y_train": x[:, 0], "x_test": x, "y_test": x[:, 0]}
"""


@pytest.mark.long
def test_an_app_is_measured_and_its_mistakes_are_a_line(tmp_path: Path, fab: Fab) -> None:
    app = tmp_path / "small.py"
    app.write_text(SMALL)
    done = fab("app check small.py --json --mode sync --codec fp16 --link 100")
    assert done.code == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["parameters"], found["outputs"], found["input_shape"]) == (4 * 4 + 5, 1, [3])
    assert (found["mode"], found["codec"], found["link_megabits"]) == ("sync", "fp16", 100.0)
    assert found["bytes_a_step"] == 2 * 4 * (11 + 1), "21 halves in 11 words and a scale, both ways"
    assert [each["workers"] for each in found["speed"]] == [1, 2, 4, 8, 16]
    assert found["memory"][0]["fits"] is True
    assert 0 < found["step_seconds"] < found["first_loss_seconds"]

    wrong = SMALL.replace("Dense(outputs)", "Dense(outputs, colour=1)")
    app.write_text(wrong)
    refused = fab("app check small.py")
    assert refused.code == 2, refused.stderr
    assert refused.stderr.count("\n") == 1
    assert "small.py:9: model() failed: " in refused.stderr
