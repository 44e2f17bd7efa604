"""What a training leaves: `result.json`, and `model/`, which needs no cluster to be used.

`result.json` can be written at any time of the training.
"""

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
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
from cluster.jobs.busy import BusyMeter, latest_calibration
from cluster.jobs.checkpointing import Counts
from cluster.jobs.fit import Fit, FitFacts
from cluster.jobs.roles import WireMeter
from cluster.jobs.run_logs import ChaosLog
from core.data import Dataset
from core.data.signals import UNKNOWN, Signals
from core.engine.runtime import one_thread_an_operation
from core.ground.errors import UsageError, reason_of
from core.ground.files import atomic_write, read_json
from core.inventory import Inventory
from core.inventory.fields import Choice
from core.inventory.slots import BatchSlots, ChosenArithmetic
from core.inventory.training import ModelConfig, TrainJob
from core.models.network import BuiltIn, Network, build
from core.parameters import Vector
from core.status.parts import FIGURE_KEYS, Figures
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
        "sensors": {sensor.name: sensor.kind for sensor in dataset.signals.sensors},
        "format_sha256": dataset.signals.format_sha256,
        "held_out": asdict(dataset.held_out),
    }
    attributes = [key for key in DATASET_KEYS if key not in listed]
    entry = {**listed, **{key: getattr(dataset, key) for key in attributes}}
    return {key: entry[key] for key in DATASET_KEYS}


log = logging.getLogger(__name__)


@dataclass
class TrainReport:
    """Filled in as the run goes; what is still None is null in the result."""

    inventory: Inventory
    dataset: Dataset | None = None
    network: Network | None = None
    slots: BatchSlots | None = None
    arithmetic: ChosenArithmetic | None = None
    fits: list[Fit] = field(default_factory=list)
    """Fits that were begun: the one that chooses the epoch, then perhaps the refit."""
    used: Fit | None = None
    """The fit whose parameters were tested and stored."""
    refitted: bool = False
    final: Figures | None = None
    confusion: NDArray[np.int64] | None = None
    by_group: list[dict[str, Any]] | None = None
    wrong: list[dict[str, Any]] | None = None
    precision_recall: dict[str, Any] | None = None
    before: Counts = field(default_factory=Counts)
    """The counts of the coordinators before this one."""
    counts: Counts | None = None
    wire: WireMeter = field(default_factory=WireMeter)
    busy: BusyMeter | None = None
    """Load of each task since this coordinator began to train."""
    same_bits: bool | None = None
    """Whether this run again, on nodes of the same kind, would end with the same parameters, bit
    for bit."""
    chaos: ChaosLog | None = None

    def is_complete(self, job: TrainJob, *, validated: bool) -> bool:
        """Return whether every epoch was trained that was due, and the model tested.

        The refit counts too, if one was asked for and the fit before it was `validated`.
        """
        if self.final is None or self.used is None:
            return False
        if self.refitted:
            return True
        if job.refit and validated:
            return False
        return self.used.epochs_done == job.epochs or self.used.stopped(
            job.early_stopping, job.epochs
        )

    def describe(self) -> dict[str, Any]:
        """Return what a training adds to the result of any job."""
        job = self.inventory.jobs.train
        chosen = self.fits[0] if self.fits else FitFacts()
        fit = self.used or chosen
        counts = self.counts
        return {
            "mode": job.mode,
            "seed": job.seed,
            "dataset": describe_dataset(self.dataset),
            "model": (
                self.network.describe()
                if self.network
                else {**job.model.model_dump(), "parameters": None}
            ),
            "settings": job.model_dump(mode="json", by_alias=True),
            "slots": asdict(self.slots) if self.slots else None,
            "arithmetic": asdict(self.arithmetic) if self.arithmetic else None,
            "epochs_done": fit.epochs_done,
            "refit": self.refitted,
            "final": describe_figures(self.final),
            "selected": {
                "epoch": chosen.epoch if self.fits else None,
                **describe_figures(chosen.selected),
            },
            "stopped_early": self._stopped_early(),
            "by_group": self.by_group,
            "wrong": self.wrong,
            "confusion": self.confusion.tolist() if self.confusion is not None else None,
            "precision_recall": self.precision_recall,
            "updates": {
                "scheduled": sum(fit.scheduled for fit in self.fits),
                "applied": counts.applied if counts else None,
                "duplicates_dropped": counts.duplicates_dropped if counts else None,
                "rolled_back": self.before.rolled_back,
                "memories_lost": (counts or self.before).memories_lost,
            },
            "resumptions": self.before.resumptions,
            "chaos": self.chaos.describe() if self.chaos else None,
            "wire": self.wire.describe(),
            "throughput": fit.throughput(),
            "staleness": {"mean": fit.staleness.mean(), "maximum": fit.staleness.maximum},
            "calibration": latest_calibration(Path(self.inventory.runs), self.inventory.cluster),
            "busy": self.busy.describe() if self.busy else None,
            "same_bits": self.same_bits,
            "parameters_sha256": digest_of(self.used.vector) if self.used else None,
        }

    def _stopped_early(self) -> dict[str, int] | None:
        job = self.inventory.jobs.train
        early = job.early_stopping
        if early is None or not self.fits or not self.fits[0].stopped(early, job.epochs):
            return None
        return {"epoch": self.fits[0].epochs_done, "patience": early.patience}


def describe_figures(figures: Figures | None) -> dict[str, Any]:
    """The figures, or a null for each of them."""
    if figures is not None:
        return figures.describe()
    return dict.fromkeys(FIGURE_KEYS)


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


def store(
    folder: Path,
    network: Network,
    vector: Vector,
    standardization: Standardization,
    labels: Sequence[str],
    dataset_sha256: str,
    signals: Signals = UNKNOWN,
) -> None:
    """Write the model into `folder`, and what is known of the `signals` that it takes.

    Raises ClusterError if the disk does not take it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    atomic_write(
        folder / WEIGHTS,
        save(
            {
                name: np.ascontiguousarray(value)
                for name, value in network.layout.unpack(vector).items()
            }
        ),
    )
    described: dict[str, Any] = {
        "schema": 1,
        **_described(network, folder),
        "labels": list(labels),
        "signals": signals.known_facts(),
        "channel_mean": standardization.mean.tolist(),
        "channel_deviation": standardization.deviation.tolist(),
        "dataset_sha256": dataset_sha256,
        "parameters_sha256": digest_of(vector),
    }
    atomic_write(folder / CONFIGURATION, json.dumps(described, indent=2).encode() + b"\n")


def _described(network: Network, folder: Path) -> dict[str, Any]:
    """Describe what builds the network again; its constants are written beside the weights."""
    if isinstance(network, BuiltIn):
        problem = network.problem
        model = network.config.model_dump()
        return {"model": model, "window_steps": problem.window_steps, "channels": problem.channels}
    assert isinstance(network, AppNetwork)
    if constants := network.constants():
        atomic_write(
            folder / CONSTANTS,
            save({name: np.ascontiguousarray(value) for name, value in constants.items()}),
        )
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
