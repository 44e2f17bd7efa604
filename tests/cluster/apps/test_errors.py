"""What is wrong with an app is one line: where, what was expected, what came, what to do."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import core.engine.runtime  # noqa: F401
from cluster.apps.app import load
from cluster.apps.app_network import AppNetwork, Kind
from cluster.apps.networks import network_of
from core.data.prepare import batches_of, write_examples
from core.ground.errors import UsageError
from core.ground.lazy import keras
from tests.cluster.apps.kit import kinds
from tests.tables import table

IMPORTS = "import keras\nfrom keras import layers\nimport numpy as np\nimport tensorflow as tf\n"
MODEL = """
def model(input_shape, outputs):
    found = keras.Sequential([keras.Input(input_shape), {layers}])
    {compiled}
    return found
"""
BROKEN = table("cluster/apps/broken_apps")
NOTED = table("cluster/apps/noted_apps")


KINDS = kinds((6, 3))


def source_of(app: dict[str, Any]) -> str:
    """The file of an app of `broken_apps.yaml`."""
    if "app" in app:
        return str(app["app"])
    if "instead" in app:
        return f"{IMPORTS}{app['instead']}"
    layers = ["layers.Flatten()", *app.get("layers", []), app.get("last", "layers.Dense(outputs)")]
    compiled = ""
    if "compiled" in app:
        compiled = f"found.compile({app['compiled']})"
    model = MODEL.format(layers=", ".join(layers), compiled=compiled)
    return f"{IMPORTS}{app.get('before', '')}{model}{app.get('after', '')}"


def prepared(folder: Path, source: str, task: str = "classification") -> AppNetwork:
    """What a training does with an app before anything runs; `task`: where it brings no data."""
    path = folder / "app.py"
    path.write_text(source)
    app = load(path)
    if not app.has("data"):
        return network_of(app, KINDS[task], seed=1)
    task = app.task or task
    batches, labels = batches_of(app.call("data", folder), task, f"{path}: data()")
    with app.blamed("data"):
        dataset = write_examples(
            batches,
            folder / "cache",
            name="app",
            source=f"{path}: data()",
            labels=labels,
            task=task,
        )
    return network_of(app, Kind.of_dataset(dataset), seed=1)


@pytest.fixture(autouse=True)
def policy() -> Iterator[None]:
    """That of Keras, which an app may set for all of a process."""
    before = keras.config.dtype_policy()
    yield
    keras.config.set_dtype_policy(before)


def assert_one_line(folder: Path, source: str, expected: str, *task: str) -> None:
    with pytest.raises(UsageError, match=expected) as refused:
        prepared(folder, source, *task)
    message = str(refused.value)
    assert "\n" not in message
    assert "Traceback" not in message
    assert len(message) < 700
    assert "app.py" in message
    assert not list(folder.glob("cache/.partial*"))


@pytest.mark.parametrize("what", BROKEN)
def test_it_is_one_clear_line(what: str, tmp_path: Path) -> None:
    app = BROKEN[what]
    assert_one_line(tmp_path, source_of(app), app["says"], app.get("of", "classification"))


@pytest.mark.parametrize("note", NOTED)
def test_what_would_be_passed_over_is_a_note(note: str, tmp_path: Path) -> None:
    assert note in "\n".join(prepared(tmp_path, source_of(NOTED[note])).notes())


@pytest.mark.parametrize(
    "name",
    ["train_step", "test_step", "predict_step", "compute_loss", "compute_metrics", "fit"],
)
def test_a_model_with_a_method_that_the_cluster_does_not_call(name: str, tmp_path: Path) -> None:
    own = f"class Own(keras.Sequential):\n    def {name}(self, *a, **b):\n        raise OSError\n"
    expected = (
        rf"Own .* in a {name}\(\) of its own, which the cluster does not call.*leave {name}\(\) out"
    )
    source = source_of({"before": own}).replace(" keras.Sequential([", " Own([")
    assert_one_line(tmp_path, source, expected)


def test_a_sound_app_is_none_of_them(tmp_path: Path) -> None:
    found = prepared(tmp_path, source_of({}))
    assert found.describe()["parameters"] == (6 * 3 + 1) * 4
    assert found.notes() == []
