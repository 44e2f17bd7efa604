"""The model of a finished run, and the test examples that it never saw."""

import json
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cluster.apps.app_network import AppNetwork
from cluster.export.request import MODEL, TrainedRun
from cluster.jobs.train_result import StoredModel, digest_of, load
from core.data import Dataset, Source, find_source, prepare
from core.data.dataset import CLASSIFICATION
from core.data.source import PROJECT_ROOT
from core.ground.errors import UsageError
from core.ground.files import prepared_folder, user_cache
from core.logs.bars import Report


@dataclass(frozen=True)
class HeldOutExamples:
    """The test part of the data that the model was trained on."""

    dataset: Dataset
    kind: str
    """The format of the recordings, such as `hapt`; `app` where an app's data() brought them."""

    def inputs(self) -> Any:
        """Return the inputs as they lie in the file, (test examples, *input_shape)."""
        return self.dataset.windows()[self.dataset.train_windows :]

    def classes(self) -> NDArray[np.int32] | None:
        """The class of each; None for another task, and for one class at each position."""
        if self.dataset.task != CLASSIFICATION or self.dataset.targets.shape:
            return None
        return self.dataset.classes()[self.dataset.train_windows :]


def read_model(trained: TrainedRun) -> StoredModel:
    """The model of the run. An app's own code builds it."""
    return load(trained.folder / MODEL)


def examples_of(
    trained: TrainedRun, model: StoredModel, data: str | None, report: Report
) -> HeldOutExamples:
    """The run's test examples, prepared again or taken from the cache.

    `data` names the recordings in the place of those that the run names. Raises UsageError where
    they are not those that it was trained on.
    """
    network = model.network
    if isinstance(network, AppNetwork) and network.app.has("data"):
        examples = HeldOutExamples(_of_app(trained, network, data), "app")
    else:
        named = data or trained.named or trained.source
        source = find_source(named, {}, PROJECT_ROOT, user_cache(), trained.options.get("format"))
        examples = HeldOutExamples(_prepared(trained, source, report), source.kind)
    if examples.dataset.sha256 != model.dataset_sha256:
        raise UsageError(
            f"{examples.dataset.source}: other windows than {trained.folder.name} was trained on:"
            " name its recordings with --data"
        )
    if not examples.dataset.test_windows:
        raise UsageError(
            f"{examples.dataset.source}: has no test windows to compare an export with"
            " TensorFlow on"
        )
    return examples


def digest(model: StoredModel) -> str:
    """SHA-256 of the parameters, as results have it."""
    return digest_of(model.vector)


def _prepared(trained: TrainedRun, source: Source, report: Report) -> Dataset:
    return prepare(
        source,
        window_steps=trained.window_steps,
        window_stride=trained.window_stride,
        seed=trained.seed,
        cache=prepared_folder(),
        options=trained.options,
        progress=report,
    )


def _of_app(trained: TrainedRun, network: AppNetwork, data: str | None) -> Dataset:
    """Return what data() of the run's own copy of the app answers, as on a cluster here."""
    from cluster.jobs.cancel import Cancel
    from cluster.jobs.progress import Display
    from cluster.jobs.sources import load_dataset
    from core.ground.ports import LOWEST_PORT
    from core.inventory import load
    from core.inventory.templates import local_inventory

    named = data or trained.named
    with TemporaryDirectory(prefix="pscluster-export-") as folder:
        file = Path(folder, "export.yaml")
        # Nothing listens there: a caged process could not draw free ports.
        file.write_text(
            local_inventory(1, 1, lambda count: range(LOWEST_PORT, LOWEST_PORT + count)),
            encoding="utf-8",
        )
        if named is None:
            settings = []
        else:
            settings = [f"jobs.train.data.source={json.dumps(named)}"]
        settings.append("jobs.train.mode=single")  # no roles, which would read the windows
        inventory = load(file, settings, check_interfaces=False)
    return load_dataset(inventory, Display(quiet=True), Cancel(), lambda _: None, network.app)
