"""What a job trains: its app, imported, and the network of the app or of the inventory."""

from pathlib import Path

from cluster.apps.app import App, load_copy
from cluster.apps.app import load as load_app
from cluster.apps.app_network import AppNetwork, Kind
from cluster.apps.copy import AppOfRun
from cluster.apps.networks import network_of
from core.data import Dataset
from core.engine.runtime import one_thread_an_operation
from core.ground.errors import UsageError
from core.inventory import Inventory
from core.inventory.training import TrainJob
from core.models.network import Network, build
from core.models.window_statistics import Augmentation


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
    """Raise UsageError where the parameters cannot be cut for the parameter servers of the job."""
    if not inventory.jobs.train.facts.needs_roles():
        return
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
        from cluster.apps.keras_settings import words_of  # imports Keras

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
