"""The result of a training at any time, as `result.json` has it."""

import hashlib
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cluster.data import Dataset
from cluster.inventory import Inventory
from cluster.inventory.training import MicroBatches
from cluster.jobs.chaos_log import ChaosLog
from cluster.jobs.checkpointing import Resumption
from cluster.jobs.fit import Fit, Staleness
from cluster.jobs.role_metrics import WireMeter
from cluster.jobs.run_folder import latest_calibration
from cluster.models.network import Network
from cluster.status.parts import Figures
from ps_node.shard import Totals

DATASET_KEYS = ("name", "source", "sha256", "train_windows", "test_windows", "channels", "window_steps", "labels")


@dataclass
class TrainReport:
    """Filled in as the run goes; what is still None is null in the result."""

    inventory: Inventory
    begin: float = field(default_factory=time.monotonic)
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
    totals: Totals | None = None
    wire: WireMeter = field(default_factory=WireMeter)
    rolled_back: int = 0
    """Updates that had been applied and were lost with a parameter server or the coordinator; all ran again."""
    resumptions: int = 0
    memories_lost: int = 0
    """Times a worker's process ended with what it kept between its pushes: a codec's residual, an optimizer's slots."""
    same_bits: bool | None = None
    """Whether this run again, on nodes of the same kind, would end with the same parameters, bit for bit."""
    earlier_seconds: float = 0.0
    chaos: ChaosLog | None = None

    def resume(self, found: Resumption) -> None:
        """Continue from a checkpoint."""
        self.fits += found.fits
        self.wire = WireMeter.of(found.wire)
        self.rolled_back, self.earlier_seconds = found.rolled_back, found.elapsed_seconds
        self.resumptions = found.resumptions + 1

    def elapsed_seconds(self) -> float:
        """Since the run began, without the pauses between coordinators."""
        return self.earlier_seconds + time.monotonic() - self.begin

    def describe(self) -> dict[str, Any]:
        """Every key of the contract but the status."""
        job = self.inventory.jobs.train
        chosen = self.fits[0] if self.fits else None
        shown = self.used or chosen
        return {
            "cluster": self.inventory.cluster,
            "mode": job.mode,
            "workers": len(self.inventory.of_role("worker")),
            "ps": len(self.inventory.of_role("ps")),
            "seed": job.seed,
            "dataset": describe_dataset(self.dataset),
            "model": self.network.describe() if self.network else {**job.model.model_dump(), "parameters": None},
            "settings": job.model_dump(mode="json", by_alias=True),
            "micro_batches": asdict(self.micro_batches) if self.micro_batches else None,
            "epochs_done": shown.epochs_done if shown else 0,
            "refit": self.refitted,
            "final": describe_figures(self.final),
            "selected": {
                "epoch": chosen.epoch if chosen else None,
                **describe_figures(chosen.selected if chosen else None),
            },
            "confusion": self.confusion.tolist() if self.confusion is not None else None,
            "updates": {
                "scheduled": sum(fit.scheduled for fit in self.fits),
                "applied": self.totals.applied if self.totals else None,
                "duplicates_dropped": self.totals.duplicates_dropped if self.totals else None,
                "rolled_back": self.rolled_back,
                "memories_lost": self.memories_lost,
            },
            "resumptions": self.resumptions,
            "chaos": self.chaos.describe() if self.chaos else None,
            "wire": self.wire.describe(),
            "throughput": shown.throughput() if shown else dict.fromkeys(("windows_per_second", "step_seconds_p50")),
            "staleness": (shown.staleness if shown else Staleness()).describe(),
            "calibration": latest_calibration(Path(self.inventory.runs), self.inventory.cluster),
            "same_bits": self.same_bits,
            "parameters_sha256": digest_of(self.used.vector) if self.used else None,
            "elapsed_seconds": self.elapsed_seconds(),
        }


def describe_dataset(dataset: Dataset | None) -> dict[str, Any]:
    """The `dataset` entry of a result."""
    if dataset is None:
        return dict.fromkeys(DATASET_KEYS)
    return {key: list(dataset.labels) if key == "labels" else getattr(dataset, key) for key in DATASET_KEYS}


def describe_figures(figures: Figures | None) -> dict[str, Any]:
    """The figures, or a null for each of them."""
    return figures.describe() if figures is not None else dict.fromkeys(Figures.__dataclass_fields__)


def digest_of(vector: NDArray[np.float32]) -> str:
    """SHA-256 of the little-endian float32 vector in layout order, statistics included."""
    return hashlib.sha256(vector.astype("<f4", copy=False).tobytes()).hexdigest()
