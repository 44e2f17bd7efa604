"""Apps for tests: files in a folder, and networks of functions that make Keras models."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import core.engine.runtime  # noqa: F401  (its options decide how graphs are optimized)
from cluster.apps.app import App
from cluster.apps.app_network import AppNetwork, Kind
from cluster.apps.keras_network import KerasNetwork
from cluster.apps.networks import network_of
from core.ground.lazy import keras

OUTPUTS = 4
SEED = 5


def classes(shape: tuple[int, ...], dtype: str = "float32") -> Kind:
    """Four classes of such examples."""
    return Kind("classification", OUTPUTS, shape, dtype, (), "int32")


OF_THREE = classes((3,))


def kinds(shape: tuple[int, ...]) -> dict[str, Kind]:
    """Four classes, labels or numbers of such examples, by their task."""
    each = (OUTPUTS,)
    return {
        "classification": classes(shape),
        "multilabel": Kind("multilabel", OUTPUTS, shape, "float32", each, "int32"),
        "regression": Kind("regression", OUTPUTS, shape, "float32", each, "float32"),
    }


def numbers(count: int, features: int) -> Kind:
    """Draw examples of features, float32 (count, features)."""
    return Kind("regression", count, (features,), "float32", (count,), "float32")


def app_of(**functions: Any) -> App:
    """Make an app of these functions; its file `own.py` is never read."""
    return App("own", Path("own.py"), None, functions)


def network(kind: Kind, **functions: Any) -> AppNetwork:
    """The network of such an app."""
    return network_of(app_of(**functions), kind, SEED)


def keras_network(make: Callable[..., Any], kind: Kind = OF_THREE) -> KerasNetwork:
    """The network of an app that is one function, which makes a Keras model."""
    found = network(kind, model=make)
    assert isinstance(found, KerasNetwork)
    return found


def layered(layers: Callable[[], Sequence[Any]], kind: Kind = OF_THREE) -> KerasNetwork:
    """The network of a model of these layers, and one of numbers behind them."""

    def model(shape: tuple[int, ...], outputs: int) -> Any:
        return keras.Sequential([keras.Input(shape), *layers(), keras.layers.Dense(outputs)])

    return keras_network(model, kind)


def figures_of(found: AppNetwork, targets: Any, answers: Any) -> dict[str, Any]:
    """Loss and metrics of one batch, as an evaluation computes them."""
    sums = found.objective.sums(targets, answers, keras.ops.ones([len(answers)]))
    return dict(found.objective.figures({name: value.numpy() for name, value in sums.items()}))
