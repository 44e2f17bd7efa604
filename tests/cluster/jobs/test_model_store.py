"""A stored model comes back as it was, or is one error."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from cluster.apps.app_network import AppNetwork
from cluster.jobs.job_network import with_parameters_of
from cluster.jobs.train_result import CONFIGURATION, WEIGHTS, StoredModel, load, store
from core.ground.errors import UsageError
from core.inventory.fields import Choice
from core.models.network import BuiltIn, build
from core.models.residual import ResidualModel
from core.models.spectral import SpectralModel
from core.models.thesis import ThesisModel
from tests.tables import table
from worker_node.recordings import Standardization

LABELS = ("sitting", "walking", "Ünter Strom")


def stored(folder: Path, config: Choice) -> StoredModel:
    network = build(config, window_steps=16, channels=2, classes=3)
    standardization = Standardization(
        np.array([0.5, -1e-7], np.float32), np.array([2.0, 0.1], np.float32)
    )
    vector = network.initial(9)
    vector[network.layout.trained_size :] += 0.25
    model = StoredModel(network, vector, standardization, LABELS, "0" * 64)
    store(folder, model)
    return model


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


def test_a_training_goes_on_with_one_class_more(tmp_path: Path) -> None:
    config = ThesisModel(hidden=8)
    before = stored(tmp_path / "model", config)
    labels = ("running", "sitting", "walking", "Ünter Strom")
    network = build(config, window_steps=16, channels=2, classes=4)
    fresh = network.layout.unpack(network.initial(1))
    old = before.network.layout.unpack(before.vector)
    found = network.layout.unpack(with_parameters_of(network.initial(1), network, before, labels))
    widened = [name for name in found if found[name].shape != old[name].shape]
    for name, value in found.items():
        expected = np.append(fresh[name][..., :1], old[name], -1) if name in widened else old[name]
        np.testing.assert_array_equal(value, expected)
    narrow = build(ThesisModel(hidden=16), window_steps=16, channels=2, classes=4)
    with pytest.raises(ValueError, match="shape"):
        with_parameters_of(narrow.initial(1), narrow, before, labels)


def test_the_weights_are_named_tensors_any_reader_can_use(tmp_path: Path) -> None:
    model = stored(tmp_path / "model", ThesisModel(hidden=8))
    shapes = {name: value.shape for name, value in load_file(tmp_path / "model" / WEIGHTS).items()}
    assert shapes == {slot.spec.name: slot.spec.shape for slot in model.network.layout.slots}


def changed(folder: Path, key: str, *value: Any) -> None:
    """The configuration with another value of a key, or without it."""
    path = folder / CONFIGURATION
    content = json.loads(path.read_text())
    del content[key]
    content.update(dict.fromkeys([key], *value) if value else {})
    path.write_text(json.dumps(content))


def written(folder: Path, name: str, content: str) -> None:
    (folder / name).write_bytes(content.encode("latin-1"))


def gone(folder: Path, name: str) -> None:
    (folder / name).unlink()


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


DAMAGES = table("cluster/jobs/rows", "damages of a model")
DONE_BY: dict[str, Callable[..., None]] = {
    each.__name__: each
    for each in (changed, written, gone, cut_short, one_tensor_missing, one_bit_flipped)
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_one_line_that_names_the_file(tmp_path: Path, name: str) -> None:
    damage, values, reason = DAMAGES[name]
    folder = tmp_path / "model"
    stored(folder, ThesisModel(hidden=8))
    DONE_BY[damage](folder, *values)
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
    from cluster.apps.files import files_of_app, remember_digest
    from cluster.apps.networks import network_of

    monkeypatch.setattr(
        "cluster.jobs.train_result.one_thread_an_operation", lambda: None
    )  # TensorFlow runs already
    (tmp_path / "mine.py").write_text(FROZEN_APP)
    kind = Kind("classification", 3, (5,), "float32", (), "int32")
    network = network_of(load_app(tmp_path / "mine.py"), kind, 7)
    remember_digest(keep(files_of_app(tmp_path / "mine.py"), tmp_path).digest, "mine")
    nothing = Standardization(np.zeros(0, np.float32), np.ones(0, np.float32))
    before = {name: value + 1.0 for name, value in network.constants().items()}
    network.fix(before)
    model = StoredModel(network, network.initial(7), nothing, ("a", "b", "c"), "0")
    store(tmp_path / "model", model)
    after = load(
        tmp_path / "model"
    ).network  # the second model of this process: its layers have other numbers
    assert isinstance(after, AppNetwork)
    assert list(after.constants()) != list(before)
    for found, wanted in zip(after.constants().values(), before.values(), strict=True):
        np.testing.assert_array_equal(found, wanted)
