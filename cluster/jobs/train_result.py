"""What a training leaves: `result.json`, at any time, and `model/`, all it takes to use the model without a cluster."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from cluster.apps.app import load as load_app
from cluster.apps.networks import AppNetwork, Kind, network_of
from cluster.atomic_write import atomic_write
from cluster.data import Dataset
from cluster.engine.runtime import one_thread_an_operation
from cluster.errors import UsageError, reason_of
from cluster.inventory import Inventory
from cluster.inventory.fields import Choice
from cluster.inventory.micro_batches import MicroBatches
from cluster.inventory.training import ModelConfig
from cluster.jobs.busy import BusyMeter
from cluster.jobs.checkpointing import Counts
from cluster.jobs.fit import Fit
from cluster.jobs.roles import WireMeter
from cluster.jobs.run_folder import ChaosLog, latest_calibration
from cluster.jobs.trained_on import TrainedOn
from cluster.models.network import BuiltIn, Network, build
from cluster.parameters import Vector
from cluster.status.parts import FIGURE_KEYS, Figures
from worker_node.recordings import Standardization

DATASET_KEYS = (
    "name", "source", "sha256", "train_windows", "test_windows", "channels", "window_steps", "labels", "task", "unit",
    "held_out", "filters", "sampling_hz",
)  # fmt: skip


@dataclass
class TrainReport:
    """Filled in as the run goes; what is still None is null in the result."""

    inventory: Inventory
    dataset: Dataset | None = None
    network: Network | None = None
    micro_batches: MicroBatches | None = None
    fits: list[Fit] = field(default_factory=list)
    """Every fit that was begun: the one that chooses the epoch, then perhaps the refit."""
    used: Fit | None = None
    """The fit whose parameters were tested and stored."""
    refitted: bool = False
    final: Figures | None = None
    confusion: NDArray[np.int64] | None = None
    precision_recall: dict[str, Any] | None = None
    before: Counts = field(default_factory=Counts)
    """Of the coordinators before this one."""
    counts: Counts | None = None
    wire: WireMeter = field(default_factory=WireMeter)
    memories_lost: int = 0
    """Times a worker's process ended with what it kept between its pushes: a codec's residual, an optimizer's slots."""
    teachers: Sequence[dict[str, Any]] = ()
    """What is known of those that the network learnt from."""
    busy: BusyMeter | None = None
    """What ran where, and how busy it was, since this coordinator began to train."""
    same_bits: bool | None = None
    """Whether this run again, on nodes of the same kind, would end with the same parameters, bit for bit."""
    chaos: ChaosLog | None = None

    def describe(self) -> dict[str, Any]:
        """What a training adds to the result of any job."""
        job = self.inventory.jobs.train
        chosen = self.fits[0] if self.fits else None
        shown, counts = self.used or chosen, self.counts
        return {
            "mode": job.mode,
            "seed": job.seed,
            "dataset": describe_dataset(self.dataset),
            "model": self.network.describe() if self.network else {**job.model.model_dump(), "parameters": None},
            "settings": job.model_dump(mode="json", by_alias=True),
            "micro_batches": asdict(self.micro_batches) if self.micro_batches else None,
            "teachers": list(self.teachers),
            "epochs_done": shown.epochs_done if shown else 0,
            "refit": self.refitted,
            "final": describe_figures(self.final),
            "selected": {
                "epoch": chosen.epoch if chosen else None,
                **describe_figures(chosen.selected if chosen else None),
            },
            "stopped_early": self._stopped_early(),
            "confusion": self.confusion.tolist() if self.confusion is not None else None,
            "precision_recall": self.precision_recall,
            "updates": {
                "scheduled": sum(fit.scheduled for fit in self.fits),
                "applied": counts.applied if counts else None,
                "duplicates_dropped": counts.duplicates_dropped if counts else None,
                "rolled_back": self.before.rolled_back,
                "memories_lost": self.memories_lost,
            },
            "resumptions": self.before.resumptions,
            "chaos": self.chaos.describe() if self.chaos else None,
            "wire": self.wire.describe(),
            "throughput": shown.throughput() if shown else dict.fromkeys(("windows_per_second", "step_seconds_p50")),
            "staleness": {
                "mean": shown.staleness.mean() if shown else None,
                "maximum": shown.staleness.maximum if shown else None,
            },
            "calibration": latest_calibration(Path(self.inventory.runs), self.inventory.cluster),
            "busy": self.busy.describe() if self.busy else None,
            "same_bits": self.same_bits,
            "parameters_sha256": digest_of(self.used.vector) if self.used else None,
        }

    def _stopped_early(self) -> dict[str, int] | None:
        job = self.inventory.jobs.train
        early, chosen = job.early_stopping, self.fits[0] if self.fits else None
        if early is None or chosen is None or not chosen.stopped(early, job.epochs):
            return None
        return {"epoch": chosen.epochs_done, "patience": early.patience}


def describe_dataset(dataset: Dataset | None) -> dict[str, Any]:
    """The `dataset` entry of a result."""
    if dataset is None:
        return dict.fromkeys(DATASET_KEYS)
    listed = {"labels": list(dataset.labels), "held_out": asdict(dataset.held_out)}
    return {key: listed.get(key, getattr(dataset, key)) for key in DATASET_KEYS}


def describe_figures(figures: Figures | None) -> dict[str, Any]:
    """The figures, or a null for each of them."""
    return figures.describe() if figures is not None else dict.fromkeys(FIGURE_KEYS)


def digest_of(vector: NDArray[np.float32]) -> str:
    """SHA-256 of the little-endian float32 vector in layout order, statistics included."""
    return hashlib.sha256(vector.astype("<f4", copy=False).tobytes()).hexdigest()


_CONFIG: TypeAdapter[Choice] = TypeAdapter(ModelConfig)
_KIND: TypeAdapter[Kind] = TypeAdapter(Kind)
WEIGHTS, CONSTANTS, CONFIGURATION = "weights.safetensors", "constants.safetensors", "model.json"


@dataclass(frozen=True)
class StoredModel:
    """A model as it was trained: the network, its flat vector, and how its input is standardized."""

    network: Network
    vector: Vector
    standardization: Standardization
    labels: tuple[str, ...]
    dataset_sha256: str = ""
    trained_on: TrainedOn | None = None
    """None: an earlier version stored it."""


def store(
    folder: Path, network: Network, vector: Vector, standardization: Standardization, labels: Sequence[str],
    dataset_sha256: str, trained_on: TrainedOn | None = None,
) -> None:  # fmt: skip
    """Write the model into `folder`. Raises ClusterError if the disk does not take it."""
    folder.mkdir(exist_ok=True)
    atomic_write(folder / WEIGHTS, save({name: np.ascontiguousarray(value)
                                        for name, value in network.layout.unpack(vector).items()}))  # fmt: skip
    described: dict[str, Any] = {
        "schema": 1,
        **_described(network, folder),
        "labels": list(labels),
        "channel_mean": standardization.mean.tolist(),
        "channel_deviation": standardization.deviation.tolist(),
        "dataset_sha256": dataset_sha256,
        "trained_on": None if trained_on is None else asdict(trained_on),
        "parameters_sha256": digest_of(vector),
    }
    atomic_write(folder / CONFIGURATION, json.dumps(described, indent=2).encode() + b"\n")


def _described(network: Network, folder: Path) -> dict[str, Any]:
    """What it takes to build the network again; its constants are written beside the weights."""
    if isinstance(network, BuiltIn):
        problem = network.problem
        model = network.config.model_dump()
        return {"model": model, "window_steps": problem.window_steps, "channels": problem.channels}
    assert isinstance(network, AppNetwork)
    if constants := network.constants():
        atomic_write(folder / CONSTANTS, save({name: np.ascontiguousarray(value) for name, value in constants.items()}))
    names = [slot.spec.name for slot in network.layout.slots]
    app = {"name": network.app.name, "seed": network.seed, "parameters": names, "constants": list(constants)}
    app |= asdict(network.kind)
    return {"model": {"name": "app"}, "app": app}


def load(folder: Path, named_by: str = "--run") -> StoredModel:
    """Read a model back. Raises UsageError naming the file when something is missing or does not fit together.

    `named_by`: the flag or key with which a person named it, for messages. An app's model is built by the copy of the
    app that lies beside the folder: its code runs.
    """
    path = folder / CONFIGURATION
    try:
        described = json.loads(path.read_bytes())
        if described["schema"] != 1:
            raise ValueError(f"schema {described['schema']} where this version reads 1")
        labels = tuple(str(label) for label in described["labels"])
        network = _built(described, folder, len(labels))
        mean, deviation = (_of_channels(described, key, network) for key in ("channel_mean", "channel_deviation"))
        if (deviation <= 0).any():
            raise ValueError("a channel_deviation that is not above 0")
        path = folder / WEIGHTS
        values = load_file(path)
        if isinstance(network, AppNetwork):
            # Keras numbers layers without a name of their own, from where it stands in this process.
            then, now = described["app"]["parameters"], [slot.spec.name for slot in network.layout.slots]
            values = {name: values[before] for name, before in zip(now, then, strict=True)}
        vector = network.layout.pack(values)
        if digest_of(vector) != described["parameters_sha256"]:
            raise ValueError(f"other weights than {CONFIGURATION} says (parameters_sha256)")
        seen = described.get("trained_on")
        return StoredModel(
            network, vector, Standardization(mean, deviation), labels, str(described.get("dataset_sha256", "")),
            None if seen is None else TrainedOn.read(seen),
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError, ArithmeticError, RecursionError, SafetensorError) as problem:
        raise UsageError(
            f"{path}: expected a model that a training run left, got {reason_of(problem)}: name a finished run with "
            f"{named_by}"
        ) from None


def _built(described: Any, folder: Path, classes: int) -> Network:
    if "app" not in described:
        config = _CONFIG.validate_python(described["model"])
        return build(
            config,
            window_steps=int(described["window_steps"]),
            channels=int(described["channels"]),
            classes=classes,
        )
    of_app = described["app"]
    kind = _KIND.validate_python({name: of_app[name] for name in Kind.__dataclass_fields__})
    one_thread_an_operation()
    network = network_of(load_app(folder.parent / "app", str(of_app["name"])), kind, int(of_app["seed"]))
    if constants := network.constants():
        values = load_file(folder / CONSTANTS)
        before = of_app.get("constants", list(constants))  # earlier versions kept no names
        network.fix({name: values[then] for name, then in zip(constants, before, strict=True)})
    return network


def _of_channels(described: Any, key: str, network: Network) -> NDArray[np.float32]:
    values = np.asarray(described[key], np.float32)
    # An app's examples may come as they are: then there is nothing to standardize with.
    widths = {network.problem.channels} if isinstance(network, BuiltIn) else {0, *network.problem.input_shape[-1:]}
    if values.ndim != 1 or len(values) not in widths or not np.isfinite(values).all():
        raise ValueError(f"{key} that is not {max(widths)} finite numbers")
    return values
