"""What a job trains: its app, imported, and the network that it or the inventory's `model` describes."""

from pathlib import Path

from cluster.apps.app import App
from cluster.apps.app import load as load_app
from cluster.apps.copy import AppOfRun
from cluster.apps.networks import Kind, network_of
from cluster.data import Dataset
from cluster.engine.runtime import one_thread_an_operation
from cluster.errors import UsageError
from cluster.inventory.training import TrainJob
from cluster.models.augmentation import Augmentation
from cluster.models.network import Network, build


def imported_app(job: TrainJob, app: AppOfRun | None) -> App | None:
    """The job's app, imported. Its model starts TensorFlow's threads when it makes its first variable."""
    if job.app is None:
        return None
    one_thread_an_operation()
    return load_app(Path(job.app), None if app is None else app.name)


def network_for(job: TrainJob, dataset: Dataset, app: App | None) -> Network:
    """The app's model, or the built-in one that the job names. Raises UsageError."""
    if app is not None and app.has_model:
        if job.augment is not None:
            raise UsageError("jobs.train.augment: is for built-in networks: set it to null, write augment() in the app")
        return network_of(app, Kind.of(dataset), job.seed)
    if not dataset.holds_windows:
        raise UsageError(
            f"jobs.train.model: {job.model.name} takes standardized windows of (steps, channels), each of one "
            f"class; {dataset.source} has {dataset.summary()}: bring a model of your own with --app"
        )
    network = build(
        job.model,
        window_steps=dataset.window_steps,
        channels=dataset.channels,
        classes=dataset.outputs,
        keep_probability=job.keep_probability,
    )
    Augmentation.of(job.augment, network.problem)  # refuses here what it cannot do
    return network
