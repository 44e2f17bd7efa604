"""The trained model a run leaves in `model/`: safetensors and all it takes to use them without a cluster."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from cluster.errors import UsageError
from cluster.inventory.models import ModelConfig
from cluster.jobs.recordings import Standardization
from cluster.jobs.run_folder import write_whole
from cluster.models import Network, build
from cluster.parameters.layout import Vector

_CONFIG: TypeAdapter[ModelConfig] = TypeAdapter(ModelConfig)  # type: ignore[arg-type]  # an annotated union is no type
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
    write_whole(folder / WEIGHTS, save({name: np.ascontiguousarray(value)
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
    }
    write_whole(folder / CONFIGURATION, json.dumps(described, indent=2).encode() + b"\n")


def load(folder: Path) -> StoredModel:
    """Read a model back. Raises UsageError naming the file when something is missing or does not fit together."""
    path = folder / CONFIGURATION
    try:
        described = json.loads(path.read_bytes())
        config = _CONFIG.validate_python(described["model"])
        labels = tuple(str(label) for label in described["labels"])
        network = build(
            config,
            window_steps=int(described["window_steps"]),
            channels=int(described["channels"]),
            classes=len(labels),
        )
        standardization = Standardization(
            np.asarray(described["channel_mean"], np.float32), np.asarray(described["channel_deviation"], np.float32)
        )
        path = folder / WEIGHTS
        return StoredModel(network, network.layout.pack(load_file(path)), standardization, labels)
    except (OSError, ValueError, KeyError, TypeError, ValidationError, SafetensorError) as problem:
        reason = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
        raise UsageError(
            f"{path}: expected a model that a training run left, got: {reason}: name a finished run with --run"
        ) from None
