"""What a job trains: its app, its network, its arithmetic, and the parameters that it continues.

The arithmetic is chosen before the first step, one for all workers. Parameters of another run may
get further classes.
"""

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cluster.apps.app import App, load_copy
from cluster.apps.app import load as load_app
from cluster.apps.app_network import AppNetwork, Kind
from cluster.apps.copy import AppOfRun
from cluster.apps.networks import network_of
from cluster.jobs.modes import optimizer_of
from cluster.jobs.run_folder import model_run
from cluster.jobs.train_result import StoredModel, load
from core.data import Dataset
from core.engine.runtime import one_thread_an_operation
from core.ground.errors import UsageError
from core.ground.lazy import tf
from core.inventory import Inventory
from core.inventory.slots import LIBRARY, TENSORFLOW, ChosenArithmetic, outside_library
from core.inventory.training import TrainJob
from core.models.network import BuiltIn, Network, build
from core.models.window_statistics import Augmentation
from core.parameters import Vector
from kernels.library import loaded
from kernels.place import KIND, path
from ps_node.arithmetic import LibraryOptimizer
from recognise.plausibility import refuse_other_windows
from worker_node.recordings import Standardization


def imported_app(job: TrainJob, app: AppOfRun | None) -> App | None:
    """The job's app, imported.

    Its model starts TensorFlow's threads when it makes its first variable.
    """
    if job.app is None:
        return None
    one_thread_an_operation()
    if app is not None and not app.in_place:
        return load_copy(Path(job.app), app.name)
    return load_app(Path(job.app), None if app is None else app.name)


def network_for(job: TrainJob, dataset: Dataset, app: App | None) -> Network:
    """The app's model, or the built-in one that the job names. Raises UsageError."""
    if app is not None and app.has_model:
        if job.augment is not None:
            raise UsageError(
                "jobs.train.augment: is for built-in networks: set it to null, write augment() in"
                " the app"
            )
        model = network_of(app, Kind.of_dataset(dataset), job.seed)
        if job.averaging is not None and model.layout.constrained:
            raise UsageError(
                "jobs.train.averaging: the mean of a weight over epochs need not keep the"
                f" constraint of {model.layout.constrained[0].spec.name}: set it to null, or leave"
                " the constraint out"
            )
        return model
    if not dataset.holds_windows:
        raise UsageError(
            f"jobs.train.model: {job.model.name} takes standardized windows of (steps, channels),"
            f" each of one class; {dataset.source} has {dataset.summary()}: bring a model of your"
            " own with --app"
        )
    network = build(
        job.model,
        window_steps=dataset.window_steps,
        channels=dataset.channels,
        classes=dataset.outputs,
        keep_probability=job.keep_probability,
        vectors=dataset.signals.vectors,
    )
    Augmentation.from_settings(job.augment, network.problem)  # refuses here what it cannot do
    return network


def refuse_too_many_servers(network: Network, inventory: Inventory) -> None:
    """Raise UsageError where the parameters cannot be cut for the parameter servers."""
    try:
        network.layout.shards(len(inventory.of_role("ps")))
    except ValueError as problem:
        raise UsageError(f"nodes: {problem}") from None


def as_compiled(inventory: Inventory, network: Network) -> Inventory:
    """Return the inventory with the optimizer that the app's model is compiled with.

    Raises UsageError where the model states one and jobs.train has neither that nor the recipe's: a
    person chose another.
    """
    job = inventory.jobs.train
    stated = network.stated_settings() if isinstance(network, AppNetwork) else None
    if stated is None:
        return inventory
    compiled = TrainJob.model_validate({"recipe": job.recipe, **stated})
    usual = TrainJob(recipe=job.recipe)
    settings = [{key: getattr(train, key) for key in stated} for train in (compiled, job, usual)]
    if settings[1] not in (settings[0], settings[2]):
        from cluster.apps.keras_settings import words_of

        assert isinstance(network, AppNetwork)
        raise UsageError(
            f"{network.app.file}: model(): it is compiled with the optimizer"
            f" {compiled.optimizer.name}, but the job trains with jobs.train.optimizer"
            f" {job.optimizer.name}, schedule {job.schedule.name}, clip_norm {job.clip_norm}: leave"
            f" these out of the inventory and the optimizer out of compile(), or give the job the"
            f" same, with {words_of(stated)}"
        )
    jobs = inventory.jobs.model_copy(update={"train": job.model_copy(update=settings[0])})
    return inventory.model_copy(update={"jobs": jobs})


ARITHMETIC_REMEDY = (
    "take TensorFlow's arithmetic for all workers, `--set jobs.train.arithmetic=tensorflow`: its"
    " bits are those of a kind of processor"
)


def arithmetic_of_job(job: TrainJob, network: Network) -> ChosenArithmetic:
    """Return the arithmetic that the job asks for, or that suits its network.

    Raises UsageError where the library is asked for and does not know the job's network, or cannot
    be loaded here.
    """
    if job.arithmetic == TENSORFLOW:
        return ChosenArithmetic(TENSORFLOW, "set by jobs.train.arithmetic")
    why = _outside_library(job, network)
    if why is None:
        return ChosenArithmetic(LIBRARY, f"version {_version()}, {loaded().kind} here")
    if job.arithmetic == LIBRARY:
        raise UsageError(f"jobs.train.arithmetic: {why}: set it to auto or tensorflow")
    return ChosenArithmetic(TENSORFLOW, why)


def _version() -> int:
    try:
        library = loaded()
    except (tf.errors.OpError, OSError) as problem:
        raise UsageError(
            f"jobs.train.arithmetic: {path()} cannot be loaded on this machine"
            f" ({str(problem).splitlines()[0]}): reinstall pscluster, or {ARITHMETIC_REMEDY}"
        ) from None
    kind = os.environ.get(KIND, library.kind)
    if library.kind != kind:
        raise UsageError(
            f"{KIND}: this processor has no kind {kind!r}, it would compute as {library.kind}:"
            " unset it"
        )
    return library.version


def _outside_library(job: TrainJob, network: Network) -> str | None:
    if why := outside_library(job, own_model=not isinstance(network, BuiltIn)):
        return why
    if not LibraryOptimizer.knows(optimizer_of(job.optimizer)):
        return f"the library has no optimizer {job.optimizer.name}"
    return None


log = logging.getLogger(__name__)

FROM_RUN = "jobs.train.from_run"


def model_to_continue(
    inventory: Inventory, network: Network, dataset: Dataset
) -> StoredModel | None:
    """Return the model of the run that the job names; None without one.

    Raises UsageError where it is for other windows, knows a class that the recordings lack, or is
    another network but for its number of classes.
    """
    named = inventory.jobs.train.from_run
    if named is None:
        return None
    run = model_run(named, Path(inventory.runs))
    model = load(run / "model", FROM_RUN)
    refuse_other_windows(f"{FROM_RUN}: {run}", dataset.signals, model.signals)
    if missing := [label for label in model.labels if label not in dataset.labels]:
        raise UsageError(
            f"{FROM_RUN}: {run} has the class {missing[0]!r}, the recordings have"
            f" {', '.join(dataset.labels)}: add recordings of it, or train without --from"
        )
    if len(model.labels) == len(dataset.labels) and list(model.labels) != list(dataset.labels):
        raise UsageError(
            f"{FROM_RUN}: {run} has its classes in another order, {', '.join(model.labels)}: take"
            " the recordings in the form that it was trained on"
        )
    try:
        with_parameters_of(network.initial(0), network, model, dataset.labels)
    except ValueError:
        raise UsageError(
            f"{FROM_RUN}: {run} is another network than the one of this job: give the job the"
            f" settings of {run / 'result.json'}, `settings.model`"
        ) from None
    if model.dataset_sha256 != dataset.sha256:
        log.warning(
            "continues %s, which other recordings trained: the test says nothing about people"
            " who are in both",
            run,
        )
    return model


def standardization_for(model: StoredModel | None, dataset: Dataset, rows: Any) -> Standardization:
    """Return that of these rows; of a model that a training continues, which learnt by it."""
    if model is not None:
        return model.standardization
    return Standardization.of_rows(dataset, rows)


def with_parameters_of(
    vector: Vector, network: Network, model: StoredModel, labels: Sequence[str]
) -> Vector:
    """Return `vector` with the parameters of the model, those of its classes at their new places.

    What belongs to a further class stays as it is in `vector`. Raises ValueError for parameters of
    other shapes.
    """
    places = [labels.index(label) for label in model.labels]
    trained = list(model.network.layout.unpack(model.vector).values())
    values = network.layout.unpack(vector)
    for (name, value), before in zip(values.items(), trained, strict=True):
        values[name] = before
        for axis, sizes in enumerate(zip(before.shape, value.shape, strict=True)):
            if sizes[0] != sizes[1] and sizes == (len(places), len(labels)):
                values[name] = value.copy()
                np.moveaxis(values[name], axis, 0)[places] = np.moveaxis(before, axis, 0)
    return network.layout.pack(values)
