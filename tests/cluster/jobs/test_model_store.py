"""A stored model comes back as it was, or is one error."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from cluster.apps.app_network import AppNetwork
from cluster.jobs.train_result import CONFIGURATION, WEIGHTS, StoredModel, load, store
from core.errors import UsageError
from core.inventory.fields import Choice
from core.models.network import BuiltIn, build
from core.models.residual import ResidualModel
from core.models.spectral import SpectralModel
from core.models.thesis import ThesisModel
from worker_node.recordings import Standardization

LABELS = ("sitting", "walking", "Ünter Strom")


def stored(folder: Path, config: Choice) -> StoredModel:
    network = build(config, window_steps=16, channels=2, classes=3)
    standardization = Standardization(
        np.array([0.5, -1e-7], np.float32), np.array([2.0, 0.1], np.float32)
    )
    vector = network.initial(9)
    vector[network.layout.trained_size :] += 0.25
    store(folder, network, vector, standardization, LABELS, "0" * 64)
    return StoredModel(network, vector, standardization, LABELS)


EVERY = [
    ThesisModel(hidden=8, batch_norm=True),
    ResidualModel(hidden=8, layers=1),
    SpectralModel(hidden=8),
]


@pytest.mark.parametrize("config", EVERY, ids=lambda config: config.name)
def test_comes_back_bit_for_bit(tmp_path: Path, config: Choice) -> None:
    before = stored(tmp_path / "model", config)
    after = load(tmp_path / "model")
    np.testing.assert_array_equal(after.vector, before.vector)
    np.testing.assert_array_equal(after.standardization.packed(), before.standardization.packed())
    assert after.labels == LABELS
    assert isinstance(after.network, BuiltIn)
    assert after.network.config == config
    assert after.network.problem.window_steps == 16
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == [CONFIGURATION, WEIGHTS]


def test_the_weights_are_named_tensors_any_reader_can_use(tmp_path: Path) -> None:
    model = stored(tmp_path / "model", ThesisModel(hidden=8))
    shapes = {name: value.shape for name, value in load_file(tmp_path / "model" / WEIGHTS).items()}
    assert shapes == {slot.spec.name: slot.spec.shape for slot in model.network.layout.slots}


def changed(key: str, *value: Any) -> Callable[[Path], None]:
    """The configuration with another value of a key, or without it."""

    def change(folder: Path) -> None:
        path = folder / CONFIGURATION
        content = json.loads(path.read_text())
        del content[key]
        content.update(dict.fromkeys([key], *value) if value else {})
        path.write_text(json.dumps(content))

    return change


def written(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(content)


def gone(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def cut_short(folder: Path) -> None:
    path = folder / WEIGHTS
    path.write_bytes(path.read_bytes()[:-100])


def one_tensor_missing(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    tensors.pop(sorted(tensors)[0])
    save_file(tensors, folder / WEIGHTS)


def one_bit_flipped(folder: Path) -> None:
    content = bytearray((folder / WEIGHTS).read_bytes())
    content[-3] ^= 1
    (folder / WEIGHTS).write_bytes(content)


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no configuration": (gone(CONFIGURATION), "No such file"),
    "no weights": (gone(WEIGHTS), "No such file"),
    "empty configuration": (written(CONFIGURATION, b""), "Expecting value"),
    "half a configuration": (written(CONFIGURATION, b'{"schema": 1, "mod'), "Unterminated string"),
    "no JSON object": (written(CONFIGURATION, b"[1, 2]"), "list indices"),
    "no text": (written(CONFIGURATION, b"\xff\xfe\x00"), "."),
    "deep nesting": (written(CONFIGURATION, b"[" * 100_000), "nested too deeply"),
    "another schema": (changed("schema", 2), "schema 2"),
    "no schema": (changed("schema"), "no key 'schema'"),
    "no labels": (changed("labels"), "no key 'labels'"),
    "labels that are a number": (changed("labels", 3), "not iterable"),
    "fewer labels than outputs": (changed("labels", ["a", "b"]), "expected shape"),
    "an unknown network": (changed("model", {"name": "gpt"}), "model"),
    "a knob out of range": (changed("model", {"name": "thesis", "hidden": 3}), "hidden"),
    "a window without end": (changed("window_steps", float("inf")), "infinity"),
    "too few means": (changed("channel_mean", [0.5]), "channel_mean"),
    "a mean that is no number": (changed("channel_mean", ["a", "b"]), "could not convert"),
    "a deviation of zero": (changed("channel_deviation", [0.0, 1.0]), "above 0"),
    "a deviation of NaN": (changed("channel_deviation", [float("nan"), 1.0]), "finite"),
    "weights cut short": (cut_short, "."),
    "weights that are none": (written(WEIGHTS, b"not weights"), "."),
    "a tensor missing": (one_tensor_missing, "no value for parameter"),
    "one bit flipped": (one_bit_flipped, "parameters_sha256"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_one_line_that_names_the_file(tmp_path: Path, name: str) -> None:
    damage, reason = DAMAGES[name]
    folder = tmp_path / "model"
    stored(folder, ThesisModel(hidden=8))
    damage(folder)
    with pytest.raises(UsageError, match=reason) as caught:
        load(folder)
    assert str(caught.value).startswith(str(folder))
    assert "\n" not in str(caught.value)
    assert "--run" in str(caught.value)


FROZEN_APP = """
import keras
def model(input_shape, outputs):
    return keras.Sequential([
        keras.Input(input_shape), keras.layers.Dense(4, trainable=False),
        keras.layers.Dense(outputs),
    ])
"""


def test_the_frozen_weights_of_an_app_come_back_whatever_number_keras_gives_their_layer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cluster.apps.app import load as load_app
    from cluster.apps.app_network import Kind
    from cluster.apps.copy import keep
    from cluster.apps.files import look
    from cluster.apps.networks import network_of
    from cluster.apps.ownership import remember

    monkeypatch.setattr(
        "cluster.jobs.train_result.one_thread_an_operation", lambda: None
    )  # TensorFlow runs already
    (tmp_path / "mine.py").write_text(FROZEN_APP)
    kind = Kind("classification", 3, (5,), "float32", (), "int32")
    network = network_of(load_app(tmp_path / "mine.py"), kind, 7)
    remember(keep(look(tmp_path / "mine.py"), tmp_path).digest, "mine")
    nothing = Standardization(np.zeros(0, np.float32), np.ones(0, np.float32))
    before = {name: value + 1.0 for name, value in network.constants().items()}
    network.fix(before)
    store(tmp_path / "model", network, network.initial(7), nothing, ("a", "b", "c"), "0")
    after = load(
        tmp_path / "model"
    ).network  # the second model of this process: its layers have other numbers
    assert isinstance(after, AppNetwork)
    assert list(after.constants()) != list(before)
    for found, wanted in zip(after.constants().values(), before.values(), strict=True):
        np.testing.assert_array_equal(found, wanted)
