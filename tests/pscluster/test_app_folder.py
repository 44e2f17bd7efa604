"""What `train` is given becomes an app folder that stands alone."""

import importlib.util
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.errors import DataError, UsageError
from pscluster.app_folder import AppParts, app_of, arrays_of

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


ARRAYS = {"x_train": np.ones((4, 2)), "y_train": np.arange(4), "x_test": np.ones((2, 2)), "y_test": np.arange(2)}


def opened(folder: Path) -> Any:
    spec = importlib.util.spec_from_file_location("written_app", folder / "app.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def written(cache: Path, **parts: Any) -> Path:
    flags = app_of(AppParts(**parts), cache).flags
    assert flags[0] == "--app"
    return Path(flags[1])


def test_a_function_brings_what_it_uses(tmp_path: Path) -> None:
    app = opened(written(tmp_path, model=network, loss=spread, task="regression"))
    assert app.model((4.0, 9.0), 5) == ([2.0, 3.0], 13)
    assert app.task == "regression"
    assert app.loss(3, 1) == 4


@pytest.mark.parametrize("function", [small, model])
def test_a_function_of_nothing_is_wrapped(function: Callable[[], str], tmp_path: Path) -> None:
    assert opened(written(tmp_path, model=function)).model((1,), 2) == function()


def test_arrays_come_back_and_the_same_folder_is_used_again(tmp_path: Path) -> None:
    folder = written(tmp_path, model=network, data=ARRAYS)
    found = opened(folder).data(folder)
    assert sorted(found) == sorted(ARRAYS)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(found[name], array)
    pairs = ((ARRAYS["x_train"], ARRAYS["y_train"]), (ARRAYS["x_test"], ARRAYS["y_test"]))
    assert written(tmp_path, model=network, data=pairs) == folder
    assert sorted(path.name for path in (tmp_path / "apps").iterdir()) == [folder.name]


def test_large_arrays_lie_beside_the_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pscluster.app_folder.IN_APP_BYTES", 10)
    flags = app_of(AppParts(network, ARRAYS), tmp_path).flags
    assert (flags[0], flags[2]) == ("--app", "--data")
    found = opened(Path(flags[1])).data(Path(flags[3]))
    np.testing.assert_array_equal(found["y_train"], ARRAYS["y_train"])


def test_names_and_paths_are_flags(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("")
    assert app_of(AppParts()).flags == ()
    assert app_of(AppParts("residual", "synthetic")).flags == ("--model", "residual", "--data", "synthetic")
    assert app_of(AppParts(file)).flags == ("--app", str(file))


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
def test_what_cannot_travel_is_refused_in_one_line(parts: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as raised:
        app_of(AppParts(**parts), tmp_path)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)
    assert not list(tmp_path.rglob("app.py"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"x_test": None}, "x_test is missing"),
        ({"x_valid": np.ones(2)}, "found 'x_valid'"),
        ({"y_train": np.arange(3)}, "found shapes (4, 2) and (3,)"),
        ({"y_test": np.array([object(), None])}, "found Python objects"),
    ],
)
def test_wrong_arrays_are_named(change: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError) as raised:
        arrays_of(ARRAYS | change)
    assert words in str(raised.value)


def test_what_the_job_would_refuse_is_refused_before(tmp_path: Path) -> None:
    wrong = ARRAYS | {"x_train": np.array([[0.0, 1.0], [0.0, np.inf], [0.0, 0.0], [1.0, 1.0]])}
    with pytest.raises(DataError, match=r"^data: x_train\[1, 1\]: expected a finite float32 number, got inf"):
        app_of(AppParts(network, wrong), tmp_path)
    with pytest.raises(DataError, match=r"^data: y_train: expected classes numbered from 0"):
        app_of(AppParts(network, ARRAYS | {"y_train": np.array([0, 1, 5, 5])}), tmp_path)
    with pytest.raises(DataError, match=r"^data: task: expected classification"):
        app_of(AppParts(network, ARRAYS, task="guess"), tmp_path)
    assert not list(tmp_path.rglob("app.py"))
