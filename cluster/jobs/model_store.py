"""The trained model a run leaves in `model/`: safetensors and all it takes to use them without a cluster."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from cluster.atomic_write import atomic_write
from cluster.errors import UsageError
from cluster.inventory.fields import Choice
from cluster.inventory.training import ModelConfig
from cluster.models.network import Network, build
from cluster.parameters import Vector
from worker_node.recordings import Standardization

_CONFIG: TypeAdapter[Choice] = TypeAdapter(ModelConfig)
WEIGHTS, CONFIGURATION = "weights.safetensors", "model.json"


@dataclass(frozen=True)
class StoredModel:
    """A model as it was trained: the network, its flat vector, and how its input is standardized."""

    network: Network
    vector: Vector
    standardization: Standardization
    labels: tuple[str, ...]


def store(folder: Path, network: Network, vector: Vector, standardization: Standardization, labels: Sequence[str],
          dataset_sha256: str) -> None:  # fmt: skip
    """Write the model into `folder`. Raises ClusterError if the disk does not take it."""
    folder.mkdir(exist_ok=True)
    atomic_write(folder / WEIGHTS, save({name: np.ascontiguousarray(value)
                                        for name, value in network.layout.unpack(vector).items()}))  # fmt: skip
    problem = network.problem
    described: dict[str, Any] = {
        "schema": 1,
        "model": network.config.model_dump(),
        "window_steps": problem.window_steps,
        "channels": problem.channels,
        "labels": list(labels),
        "channel_mean": standardization.mean.tolist(),
        "channel_deviation": standardization.deviation.tolist(),
        "dataset_sha256": dataset_sha256,
        "parameters_sha256": hashlib.sha256(vector.astype("<f4", copy=False).tobytes()).hexdigest(),
    }
    atomic_write(folder / CONFIGURATION, json.dumps(described, indent=2).encode() + b"\n")


def load(folder: Path) -> StoredModel:
    """Read a model back. Raises UsageError naming the file when something is missing or does not fit together."""
    path = folder / CONFIGURATION
    try:
        described = json.loads(path.read_bytes())
        if described["schema"] != 1:
            raise ValueError(f"schema {described['schema']} where this version reads 1")
        config = _CONFIG.validate_python(described["model"])
        labels = tuple(str(label) for label in described["labels"])
        network = build(
            config,
            window_steps=int(described["window_steps"]),
            channels=int(described["channels"]),
            classes=len(labels),
        )
        mean, deviation = (_of_channels(described, key, network) for key in ("channel_mean", "channel_deviation"))
        if (deviation <= 0).any():
            raise ValueError("a channel_deviation that is not above 0")
        path = folder / WEIGHTS
        vector = network.layout.pack(load_file(path))
        if hashlib.sha256(vector.tobytes()).hexdigest() != described["parameters_sha256"]:
            raise ValueError(f"other weights than {CONFIGURATION} says (parameters_sha256)")
        return StoredModel(network, vector, Standardization(mean, deviation), labels)
    except (OSError, ValueError, KeyError, TypeError, ArithmeticError, RecursionError, SafetensorError) as problem:
        raise UsageError(
            f"{path}: expected a model that a training run left, got {_reason(problem)}: name a finished run with --run"
        ) from None


def _of_channels(described: Any, key: str, network: Network) -> NDArray[np.float32]:
    values = np.asarray(described[key], np.float32)
    if values.shape != (network.problem.channels,) or not np.isfinite(values).all():
        raise ValueError(f"{key} that is not {network.problem.channels} finite numbers")
    return values


def _reason(problem: Exception) -> str:
    match problem:
        case KeyError():
            return f"no key {problem}"
        case ValidationError():
            first = problem.errors()[0]
            return f"model.{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
        case OSError():
            return problem.strerror or str(problem)
        case _:
            return (str(problem).splitlines() or [type(problem).__name__])[0]
