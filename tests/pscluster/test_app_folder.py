"""What `train` is given becomes an app folder that stands alone."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.apps.app import load
from core.ground.errors import DataError, UsageError, reason_of
from core.ground.lazy import keras
from pscluster.app_folder import AppParts, app_flags, arrays_of, settings_of
from pscluster.run import Run
from tests.lazy import own_keras
from tests.tables import table

WIDTH = 3
OPAQUE = object()


def doubled(number: int) -> int:
    return 2 * number


def network(input_shape: Any, outputs: int) -> Any:
    """A stand-in for a Keras model."""
    inner = [math.sqrt(each) for each in input_shape]
    return inner, doubled(outputs) + WIDTH


def small() -> str:
    return f"nothing given, {Path('a').name}"


def model() -> str:
    return "named as it is wanted"


def spread(y: Any, outputs: Any) -> Any:
    return np.square(y - outputs)


ARRAYS = {
    "x_train": np.ones((4, 2)),
    "y_train": np.arange(4),
    "x_test": np.ones((2, 2)),
    "y_test": np.arange(2),
}


def written(cache: Path, **parts: Any) -> Path:
    flags = app_flags(AppParts(**parts), cache)
    assert flags[0] == "--app"
    return Path(flags[1])


def test_a_function_brings_what_it_uses(tmp_path: Path) -> None:
    app = load(written(tmp_path, model=network, loss=spread, task="regression"))
    assert app.call("model", (4.0, 9.0), 5) == ([2.0, 3.0], 13)
    assert app.task == "regression"
    assert app.call("loss", 3, 1) == 4


@pytest.mark.parametrize("function", [small, model])
def test_a_function_of_nothing_is_wrapped(function: Callable[[], str], tmp_path: Path) -> None:
    app = load(written(tmp_path, model=function))
    assert app.call("model", (1,), 2) == function()


def test_arrays_come_back_and_the_same_folder_is_used_again(tmp_path: Path) -> None:
    folder = written(tmp_path, model=network, data=ARRAYS)
    found = load(folder).call("data", folder)
    assert sorted(found) == sorted(ARRAYS)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(found[name], array)
    pairs = ((ARRAYS["x_train"], ARRAYS["y_train"]), (ARRAYS["x_test"], ARRAYS["y_test"]))
    assert written(tmp_path, model=network, data=pairs) == folder
    assert sorted(path.name for path in (tmp_path / "apps").iterdir()) == [folder.name]


def test_nothing_but_its_own_content_passes_for_the_app(tmp_path: Path) -> None:
    folder = written(tmp_path, model=network)
    (folder / "app.py").unlink()
    assert written(tmp_path, model=network) == folder
    assert (folder / "app.py").is_file()
    folder.rename(tmp_path / "whole")
    folder.touch()
    with pytest.raises(NotADirectoryError):
        written(tmp_path, model=network)


def test_large_arrays_lie_beside_the_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pscluster.app_folder.IN_APP_BYTES", 10)
    flags = app_flags(AppParts(network, ARRAYS), tmp_path)
    assert (flags[0], flags[2]) == ("--app", "--data")
    found = load(Path(flags[1])).call("data", Path(flags[3]))
    np.testing.assert_array_equal(found["y_train"], ARRAYS["y_train"])


def test_names_and_paths_are_flags(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("")
    assert app_flags(AppParts()) == ()
    assert app_flags(AppParts("residual", "synthetic")) == (
        "--model",
        "residual",
        "--data",
        "synthetic",
    )
    assert app_flags(AppParts(file)) == ("--app", str(file))


def opaque(input_shape: Any, outputs: Any) -> Any:
    return OPAQUE, input_shape, outputs


def three(a: Any, b: Any, c: Any) -> Any:
    return a, b, c


def missing(input_shape: Any, outputs: Any) -> Any:
    return nowhere(input_shape, outputs)  # type: ignore[name-defined]  # noqa: F821


def around() -> Callable[..., Any]:
    depth = 3

    def inner(input_shape: Any, outputs: Any) -> Any:
        return depth, input_shape, outputs

    return inner


def sourceless() -> Any:
    scope: dict[str, Any] = {}
    exec("def model(input_shape, outputs):\n    return 1\n", scope)
    return scope["model"]


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"model": lambda shape, outputs: shape}, "made with `def`"),
        ({"model": 3}, "made with `def`"),
        ({"model": opaque}, "'OPAQUE', a object"),
        ({"model": three}, "found 3 parameters"),
        ({"model": missing}, "'nowhere', which is not defined"),
        ({"model": around()}, "'depth' of the function around it"),
        ({"model": sourceless()}, "no source"),
        ({"model": "thesis", "loss": spread}, "belongs to a model"),
        ({"model": "thesis", "data": ARRAYS}, "arrays go with a model"),
        ({"model": "./nowhere.py"}, "no such app"),
    ],
)
def test_what_cannot_travel_is_refused_in_one_line(
    parts: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError) as raised:
        app_flags(AppParts(**parts), tmp_path)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)
    assert not list(tmp_path.rglob("app.py"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"x_test": None}, "x_test is missing"),
        ({"x_valid": np.ones(2)}, "unknown key 'x_valid'"),
        ({"y_train": np.arange(3)}, "expected 4 targets, one for each example of x_train, got 3"),
        ({"y_test": np.array([object(), None])}, "y_test"),
    ],
)
def test_wrong_arrays_are_named(change: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError) as raised:
        arrays_of(ARRAYS | change)
    assert words in str(raised.value)


REFUSED = table("pscluster/rows", "refused data")


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_job_would_refuse_is_refused_before(name: str, tmp_path: Path) -> None:
    change, task, words = REFUSED[name]
    arrays = ARRAYS | {part: np.array(values) for part, values in change.items()}
    with pytest.raises(DataError, match=f"^data: {words}"):
        app_flags(AppParts(network, arrays, task=task), tmp_path)
    assert not list(tmp_path.rglob("app.py"))


def layered(*layers: Any) -> Any:
    return keras.Sequential([keras.Input((2,)), *layers, keras.layers.Dense(1)])


def test_a_compiled_model_brings_its_loss_and_its_optimizer(tmp_path: Path) -> None:
    model = layered()
    assert settings_of(model) == {}
    model.compile(keras.optimizers.Adam(0.01, global_clipnorm=2.0), loss="mae")
    adam = {"name": "adam", "learning_rate": 0.01, "beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-7}
    assert settings_of(model) == {
        "optimizer": adam,
        "schedule": {"name": "constant"},
        "clip_norm": 2.0,
    }
    arrays = ARRAYS | {"y_train": np.ones(4), "y_test": np.zeros(len(ARRAYS["x_test"]))}
    _, folder, *_ = app_flags(AppParts(model, arrays, task="regression"), tmp_path)
    opened = load(Path(folder)).call("model", (2,), 1)
    assert (opened.loss, opened.optimizer) == ("mae", None)
    model.train_step = lambda data: {}
    with pytest.raises(
        UsageError, match=r"Sequential computes a step in a train_step\(\) of its own"
    ):
        settings_of(model)


def mse(y: Any, outputs: Any) -> Any:
    return 100.0 * keras.ops.mean(keras.ops.abs(y - outputs), -1)


@pytest.mark.filterwarnings("ignore:The object being serialized includes a `lambda`")
@pytest.mark.parametrize(
    ("compiled", "words"),
    [
        (lambda: {"loss": mse}, r"compiled with mse, which is none of Keras's.* as loss="),
        (lambda: {"loss": own_keras.OwnLoss()}, r"compiled with OwnLoss, .* as loss="),
        (
            lambda: {"loss": "mae", "metrics": [["mae", lambda y, outputs: y]]},
            r"compiled with <lambda>, .* as metrics=",
        ),
        (
            lambda: {"loss": "mae", "metrics": {"dense": keras.metrics.MeanMetricWrapper(mse)}},
            r"with mse, .* as metrics=",
        ),
        (
            lambda: {"optimizer": keras.optimizers.SGD(own_keras.OwnSchedule())},
            r"Keras cannot write it \(.*get_config.*own out",
        ),
    ],
)
def test_what_a_model_is_compiled_with_and_no_job_can_open_is_refused(
    compiled: Callable[[], dict[str, Any]], words: str, tmp_path: Path
) -> None:
    model = layered()
    model.compile(**compiled())
    with pytest.raises(UsageError, match=words):
        app_flags(AppParts(model), tmp_path)
    assert not list(tmp_path.rglob("app.py"))


def test_a_file_that_keras_does_not_open_is_one_clear_line(tmp_path: Path) -> None:
    model = layered(keras.layers.Lambda(lambda x: x + 1))
    (tmp_path / "model").mkdir()
    (tmp_path / "result.json").write_text("{}")
    file = tmp_path / "model" / "model.keras"
    model.save(file)
    words = r"model\.keras: Keras does not open it: .*lambda.*safe_mode=False"
    with pytest.raises(UsageError, match=words):
        Run(tmp_path).model  # noqa: B018
    assert keras.models.load_model(file, compile=False, safe_mode=False)


def test_the_reason_of_a_message_that_begins_with_an_empty_line_is_its_first_words() -> None:
    assert reason_of(ValueError("\n\n  Keras says why.\nand more")) == "Keras says why."
