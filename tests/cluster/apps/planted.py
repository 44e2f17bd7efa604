"""Runs that somebody else has made: their code says that it ran."""

import json
from pathlib import Path

from cluster.apps.copy import keep
from cluster.apps.files import files_of_app
from tests.cluster.apps.trees import write_tree
from tests.tables import table

RAN = "the planted code ran"
SOUND = """
import keras, numpy as np
def model(input_shape, outputs):
    return keras.Sequential([keras.Input(input_shape), keras.layers.Dense(outputs)])
def data(folder):
    x, y = np.ones((6, 4), 'float32'), np.arange(6) % 3
    return {'x_train': x, 'y_train': y, 'x_test': x, 'y_test': y}
"""


def code(mark: Path) -> str:
    """A whole app, which leaves `mark` where it is imported."""
    return f"__import__('pathlib').Path({str(mark)!r}).write_text({RAN!r})\n{SOUND}"


RECORDS = table("cluster/apps/planted")


def plant(run: Path, mark: Path, *, record: bool, name: str = "app", finished: bool = True) -> str:
    """Make the run by hand; the digest of its app. `record`: with an app.json that fits.

    `name`: of its model.
    """
    digest = files_of_app(write_tree(run / "app", {"app.py": code(mark)})).digest
    if record:
        source = write_tree(run.parent.parent / "source", {"app.py": code(mark)})
        keep(files_of_app(source), run)
    model = RECORDS["model"]
    model["model"]["name"] = name
    result = {**RECORDS["result"], "status": "done" if finished else "failed"}
    files = {
        "model/model.json": json.dumps(model),
        "result.json": json.dumps(result),
        "coordinator.log": "",
        "sequence": "99999\n",
    }
    write_tree(run, files)
    return digest
