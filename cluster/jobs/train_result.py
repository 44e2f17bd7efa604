"""What a training leaves: `result.json`, and `model/`, which needs no cluster to be used.

`result.json` can be written at any time of the training.
"""

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from cluster.apps.app import AppError, load_copy
from cluster.apps.app_network import AppNetwork, Kind
from cluster.apps.copy import RECORD, own_app
from cluster.apps.networks import network_of
from core.data import Dataset
from core.data.signals import UNKNOWN, Signals
from core.engine.runtime import one_thread_an_operation
from core.ground.errors import UsageError, reason_of
from core.ground.files import atomic_write, read_json
from core.inventory.fields import Choice
from core.inventory.training import ModelConfig
from core.models.network import BuiltIn, Network, build
from core.parameters import Vector
from worker_node.recordings import Standardization

DATASET_KEYS = (
    "name",
    "source",
    "sha256",
    "train_windows",
    "test_windows",
    "channels",
    "window_steps",
    "labels",
    "task",
    "unit",
    "held_out",
    "filters",
    "sampling_hz",
    "channel_names",
    "units",
    "sensors",
    "people",
    "format_sha256",
)


def describe_dataset(dataset: Dataset | None) -> dict[str, Any]:
    """The `dataset` entry of a result."""
    if dataset is None:
        return dict.fromkeys(DATASET_KEYS)
    listed = {
        "labels": list(dataset.labels),
        "channel_names": list(dataset.signals.channels),
        "units": list(dataset.signals.units),
        "filters": dataset.signals.filters,
        "sampling_hz": dataset.signals.sampling_hz,
        "sensors": {sensor.name: sensor.kind for sensor in dataset.signals.sensors},
        "format_sha256": dataset.signals.format_sha256,
        "held_out": asdict(dataset.held_out),
    }
    attributes = [key for key in DATASET_KEYS if key not in listed]
    entry = {**listed, **{key: getattr(dataset, key) for key in attributes}}
    return {key: entry[key] for key in DATASET_KEYS}


log = logging.getLogger(__name__)


def digest_of(vector: NDArray[np.float32]) -> str:
    """SHA-256 of the little-endian float32 vector in layout order, statistics included."""
    return hashlib.sha256(vector.astype("<f4", copy=False).tobytes()).hexdigest()


_CONFIG: TypeAdapter[Choice] = TypeAdapter(ModelConfig)
_KIND: TypeAdapter[Kind] = TypeAdapter(Kind)
WEIGHTS = "weights.safetensors"
CONSTANTS = "constants.safetensors"
CONFIGURATION = "model.json"


@dataclass(frozen=True)
class StoredModel:
    """A model as it was trained: the network, its flat vector, how its input is standardized."""

    network: Network
    vector: Vector
    standardization: Standardization
    labels: tuple[str, ...]
    dataset_sha256: str = ""
    signals: Signals = UNKNOWN
    """Signals of the channels that it takes, by its training."""


def export_app(network: Network, vector: Vector, folder: Path) -> None:
    """Write an app's model in the format of its library.

    That it cannot be written costs the run nothing else.
    """
    if not isinstance(network, AppNetwork):
        return
    try:
        network.export(vector, folder)
    except (AppError, OSError) as problem:
        log.warning("%s", problem)


def store(folder: Path, model: StoredModel) -> None:
    """Write the model into `folder`. Raises ClusterError if the disk does not take it."""
    network = model.network
    folder.mkdir(parents=True, exist_ok=True)
    atomic_write(folder / WEIGHTS, _contiguous(network.layout.unpack(model.vector)))
    described: dict[str, Any] = {
        "schema": 1,
        **_described(network, folder),
        "labels": list(model.labels),
        "signals": model.signals.known_facts(),
        "channel_mean": model.standardization.mean.tolist(),
        "channel_deviation": model.standardization.deviation.tolist(),
        "dataset_sha256": model.dataset_sha256,
        "parameters_sha256": digest_of(model.vector),
    }
    atomic_write(folder / CONFIGURATION, json.dumps(described, indent=2).encode() + b"\n")


def _contiguous(values: Mapping[str, NDArray[Any]]) -> bytes:
    """Return a file of safetensors: it writes any array as its bytes lie in memory."""
    return save({name: np.ascontiguousarray(value) for name, value in values.items()})


def _described(network: Network, folder: Path) -> dict[str, Any]:
    """Describe what builds the network again; its constants are written beside the weights."""
    if isinstance(network, BuiltIn):
        problem = network.problem
        model = network.config.model_dump()
        return {"model": model, "window_steps": problem.window_steps, "channels": problem.channels}
    assert isinstance(network, AppNetwork)
    if constants := network.constants():
        atomic_write(folder / CONSTANTS, _contiguous(constants))
    names = [slot.spec.name for slot in network.layout.slots]
    app = {
        "name": network.app.name,
        "seed": network.seed,
        "parameters": names,
        "constants": list(constants),
    }
    app |= asdict(network.kind)
    return {"model": {"name": "app"}, "app": app}


def load(folder: Path, named_by: str = "--run") -> StoredModel:
    """Read a model back.

    Raises UsageError naming the file when something is missing or does not fit together.

    `named_by`: the flag or key with which a person named it, for messages. An app's model is built
    by the copy of the app that lies beside the folder: its code runs, if it is this account's own.
    """
    path = folder / CONFIGURATION
    try:
        described = read_json(path)
        if described["schema"] != 1:
            raise ValueError(f"schema {described['schema']} where this version reads 1")
        labels = tuple(str(label) for label in described["labels"])
        network = _built(described, folder, len(labels))
        mean, deviation = (
            _of_channels(described, key, network) for key in ("channel_mean", "channel_deviation")
        )
        if (deviation <= 0).any():
            raise ValueError("a channel_deviation that is not above 0")
        path = folder / WEIGHTS
        values = load_file(path)
        if isinstance(network, AppNetwork):
            # Keras numbers layers without a name of their own, from where it stands in this
            # process.
            then = described["app"]["parameters"]
            now = [slot.spec.name for slot in network.layout.slots]
            values = {name: values[before] for name, before in zip(now, then, strict=True)}
        vector = network.layout.pack(values)
        if digest_of(vector) != described["parameters_sha256"]:
            raise ValueError(f"other weights than {CONFIGURATION} says (parameters_sha256)")
        width = network.problem.input_shape[-1] if network.problem.input_shape else 0
        return StoredModel(
            network,
            vector,
            Standardization(mean, deviation),
            labels,
            str(described.get("dataset_sha256", "")),
            Signals.of(described.get("signals", {}), width),
        )
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        ArithmeticError,
        RecursionError,
        SafetensorError,
    ) as problem:
        raise UsageError(
            f"{path}: expected a model that a training run left, got {reason_of(problem)}: name a"
            f" finished run with {named_by}"
        ) from None


def _built(described: Any, folder: Path, classes: int) -> Network:
    # The name of a built-in network decides, whatever else there is.
    if described["model"]["name"] != "app":
        config = _CONFIG.validate_python(described["model"])
        channels = int(described["channels"])
        return build(
            config,
            window_steps=int(described["window_steps"]),
            channels=channels,
            classes=classes,
            vectors=Signals.of(described.get("signals", {}), channels).vectors,
        )
    of_app = described["app"]
    copy = own_app(folder.parent)
    if copy is None:
        raise ValueError(f"no {RECORD} beside it, and an app builds its model")
    kind = _KIND.validate_python({name: of_app[name] for name in Kind.__dataclass_fields__})
    one_thread_an_operation()
    network = network_of(load_copy(copy.path, str(of_app["name"])), kind, int(of_app["seed"]))
    if constants := network.constants():
        values = load_file(folder / CONSTANTS)
        before = of_app.get("constants", list(constants))  # earlier versions kept no names
        network.fix({name: values[then] for name, then in zip(constants, before, strict=True)})
    return network


def _of_channels(described: Any, key: str, network: Network) -> NDArray[np.float32]:
    values = np.asarray(described[key], np.float32)
    # An app's examples may come as they are: then there is nothing to standardize with.
    if isinstance(network, BuiltIn):
        widths = {network.problem.channels}
    else:
        widths = {0, *network.problem.input_shape[-1:]}
    if values.ndim != 1 or len(values) not in widths or not np.isfinite(values).all():
        raise ValueError(f"{key} that is not {max(widths)} finite numbers")
    return values
