"""What is wrong with an app is one line: file, line or function, what was expected, what came, what to do."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import cluster.engine.runtime  # noqa: F401
from cluster.apps.app import load
from cluster.apps.networks import AppNetwork, Kind, network_of
from cluster.data.dataset import Array, Dataset
from cluster.data.examples import batches_of, write_examples
from cluster.errors import UsageError

import keras  # isort: skip

KERAS = "import keras\nfrom keras import layers\nimport numpy as np\nimport tensorflow as tf\n"
DENSE = """
def model(input_shape, outputs):
    return keras.Sequential([keras.Input(input_shape), layers.Flatten(), layers.Dense(outputs)])
"""
WINDOWS = Dataset(
    "none", "none", "", Path(), tuple("abcd"), 8, 4, "", Array("x", "float32", (6, 3)), Array("y", "int32", ()),
    standardized=False,
)  # fmt: skip

BROKEN: dict[str, tuple[str, str]] = {
    "a syntax error": ("def model(:\n", r"app\.py:1: cannot be imported: SyntaxError"),
    "an import that fails": ("import no_such_package_x\n", r"app\.py:1.*no_such_package_x.*requirements\.txt"),
    "an error while it is imported": ("x = 1 / 0\n", r"app\.py:1: cannot be imported: ZeroDivisionError"),
    "a script that ends": ("import sys\nsys.exit(3)\n", r"app\.py:2.*an app is imported, not run"),
    "nothing of an app": ("x = 1\n", r"expected a function model\(input_shape, outputs\)"),
    "a misspelt name": ("def modell(a, b): ...\n", r"modell looks like model"),
    "a model that is no function": ("model = 3\n", r"expected a function model\(input_shape, outputs\), got int"),
    "a model without arguments": ("def model(): ...\n", r"got model\(\)"),
    "an async function": ("async def model(a, b): ...\n", r"got an async one"),
    "both kinds of model": (KERAS + DENSE + "def init(seed): ...\ndef forward(p, s, x, t, z): ...\n", r"got both"),
    "init without forward": ("def init(seed): ...\n", r"init\(\) without forward\(\)"),
    "an unknown task": (KERAS + DENSE + "task = 'ranking'\n", r"expected classification, multilabel or regression"),
    "another task than the data": (KERAS + DENSE + "task = 'regression'\n", r"task: regression, but the data are for"),
    "a model that raises": (KERAS + "def model(i, o):\n    return keras.Input(i) + None\n", r":6: model\(\) failed"),
    "no keras.Model": (KERAS + "def model(i, o):\n    return layers.Dense(o)\n", r"expected a keras\.Model"),
    "two inputs": (
        KERAS + "def model(i, o):\n    a, b = keras.Input(i), keras.Input(i)\n"
        "    return keras.Model([a, b], layers.Dense(o)(layers.Flatten()(a + b)))\n",
        r"expected one input, got 2",
    ),
    "two outputs": (
        KERAS + "def model(i, o):\n    a = keras.Input(i)\n    return keras.Model(a, [layers.Dense(o)(a), a])\n",
        r"expected one tensor as its answer",
    ),
    "nothing to train": (
        KERAS + "def model(i, o):\n    return keras.Sequential([keras.Input(i), layers.Flatten()])\n",
        r"no weight to train",
    ),
    "half-precision weights": (
        KERAS + DENSE.replace("(outputs)]", "(outputs, dtype='float16')]"), r"expected float32 .*mixed_bfloat16"
    ),
    "a layer in float16": (
        KERAS + DENSE.replace("(outputs)]", "(outputs, dtype='mixed_float16', name='last')]"),
        r"layer last computes in float16.*mixed_bfloat16",
    ),
    "everything in float16": (
        KERAS + DENSE.replace("):\n", "):\n    keras.config.set_dtype_policy('mixed_float16')\n"),
        r"computes in float16.*mixed_bfloat16",
    ),
    "one answer for several positions": (
        KERAS + DENSE + "def data(folder):\n    x, y = np.zeros((9, 5)), np.arange(45).reshape(9, 5) % 3\n"
        "    return {'x_train': x, 'y_train': y, 'x_test': x, 'y_test': y}\n",
        r"\(batch, 5, 3\) for 3 classes at 5 positions \(task classification\), got \(batch, 3\)",
    ),
    "a stateful layer": (
        KERAS + "def model(i, o):\n    x = keras.Input(batch_shape=(2, *i))\n"
        "    return keras.Model(x, layers.Dense(o)(layers.LSTM(4, stateful=True)(x)))\n",
        r"stateful",
    ),
    "a foreign variable": (
        KERAS + "outside = tf.Variable(2.0)\n"
        + DENSE.replace("layers.Flatten(),", "layers.Flatten(), layers.Lambda(lambda x: x * outside),"),
        r"variable .* none of its weights",
    ),
    "a large tensor from outside": (
        KERAS + "table = tf.ones([1000, 18])\n"
        + DENSE.replace("layers.Flatten(),", "layers.Flatten(), layers.Lambda(lambda x: x + table[:1]),"),
        r"made outside of its call",
    ),
    "Python inside": (
        KERAS + DENSE.replace(
            "layers.Flatten(),",
            "layers.Flatten(), layers.Lambda(lambda x: tf.ensure_shape(tf.py_function(abs, [x], x.dtype), x.shape)),",
        ),
        r"calls Python while it computes",
    ),
    "a random op with a state": (
        KERAS + DENSE.replace(
            "layers.Flatten(),", "layers.Flatten(), layers.Lambda(lambda x: x + tf.random.normal([18])),"
        ),
        r"RandomStandardNormal.*keras\.random",
    ),
    "another value at each tracing": (
        KERAS + DENSE.replace(
            "layers.Flatten(),", "layers.Flatten(), layers.Lambda(lambda x: x * np.random.rand()),"
        ),
        r"something else each time",
    ),
    "an assignment to a trained weight": (
        KERAS + DENSE.replace("layers.Dense(outputs)", "layers.SpectralNormalization(layers.Dense(outputs))"),
        r"a call assigns weight .*kernel",
    ),
    "answers of another shape": (KERAS + DENSE.replace("Dense(outputs)", "Dense(7)"), r"\(batch, 4\) for 4 classes"),
    "a loss that is a mean": (
        KERAS + DENSE + "def loss(y, outputs): return tf.reduce_mean(outputs)\n", r"expected one value for each"
    ),
    "a loss that raises": (KERAS + DENSE + "def loss(y, outputs): return y + 'a'\n", r"app\.py:\d+: loss\(\) failed"),
    "a loss of nothing": (
        KERAS + DENSE + "def loss(y, outputs): return None\n", r"loss\(\): expected one value.*got NoneType: return a"
    ),
    "a loss in Python": (
        KERAS + DENSE + "def loss(y, outputs):\n    return tf.py_function(lambda o: o[:, 0], [outputs], tf.float32)\n",
        r"loss\(\): expected one value.*shape is not known.*tf\.py_function",
    ),
    "metrics that are no dict": (
        KERAS + DENSE + "def metrics(y, outputs): return 3\n", r"metrics\(\): expected \{name: values\}, got int"
    ),
    "a metric named like a figure": (
        KERAS + DENSE + "def metrics(y, outputs): return {'accuracy': outputs}\n", r"metrics\(\).*accuracy"
    ),
    "augment with one value": (KERAS + DENSE + "def augment(x, y, seed): return x\n", r"augment\(\): expected \(x"),
    "augment with another shape": (
        KERAS + DENSE + "def augment(x, y, seed): return x[:, 1:], y\n", r"augment\(\): expected x as it came"
    ),
    "augment with more examples": (
        KERAS + DENSE + "def augment(x, y, seed): return tf.concat([x, x], 0), tf.concat([y, y], 0)\n",
        r"augment\(\): expected x as it came.*\(4, 6, 3\), got float32 of shape \(8, 6, 3\)",
    ),
    "init with text": ("def init(seed): return {'a': 'b'}\ndef forward(p, s, x, t, z): ...\n", r"a: expected an array"),
    "init with nothing": ("def init(seed): return {}\ndef forward(p, s, x, t, z): ...\n", r"at least one array"),
    "forward without a tensor": (
        "import numpy as np\ndef init(seed): return {'a': np.ones(3)}\ndef forward(p, s, x, t, z): return None\n",
        r"forward\(\): expected a tensor, got NoneType",
    ),
    "data that is no data": (KERAS + DENSE + "def data(folder): return 3\n", r"data\(\).*"),
    "data without a part": (KERAS + DENSE + "def data(folder): return {'x_train': [[1.0]]}\n", r"data\(\).*y_train"),
    "data that raises": (KERAS + DENSE + "def data(folder): return open('/no/such')\n", r"\) failed: FileNotFound"),
    "data that ends the program": (
        KERAS + DENSE + "def data(folder):\n    raise SystemExit('bye')\n",
        r"app\.py:9: data\(\) failed: SystemExit: bye",
    ),
    "data that breaks off": (
        KERAS + DENSE + "def each():\n    yield np.ones(3), 0\n    raise OSError('cable')\n"
        "def data(folder): return {'x_train': each(), 'x_test': each()}\n",
        r"data\(\) failed: OSError: cable",
    ),
}  # fmt: skip


def prepared(path: Path, cache: Path) -> AppNetwork:
    """What a training does with an app before anything runs."""
    app = load(path)
    dataset = WINDOWS
    if app.has("data"):
        batches, labels = batches_of(app.call("data", path.parent), app.task or "classification", f"{path}: data()")
        with app.blamed("data"):
            dataset = write_examples(batches, cache, name="app", source=f"{path}: data()", labels=labels)
    return network_of(app, Kind.of(dataset), seed=1)


@pytest.fixture(autouse=True)
def policy() -> Iterator[None]:
    """That of Keras, which an app may set for all of a process."""
    before = keras.config.dtype_policy()
    yield
    keras.config.set_dtype_policy(before)


@pytest.mark.parametrize("what", BROKEN)
def test_it_is_one_clear_line(what: str, tmp_path: Path) -> None:
    source, expected = BROKEN[what]
    path = tmp_path / "app.py"
    path.write_text(source)
    with pytest.raises(UsageError, match=expected) as refused:
        prepared(path, tmp_path / "cache")
    message = str(refused.value)
    assert "\n" not in message
    assert "Traceback" not in message
    assert len(message) < 700
    assert "app.py" in message
    assert not [left for left in tmp_path.glob("cache/*") if left.name.startswith(".partial")]


def test_a_sound_app_is_none_of_them(tmp_path: Path) -> None:
    path = tmp_path / "app.py"
    path.write_text(KERAS + DENSE)
    network = prepared(path, tmp_path / "cache")
    assert network.describe()["parameters"] == (6 * 3 + 1) * 4
