"""The network that an app describes: with Keras or without."""

from typing import Any

import cluster.engine.environment  # noqa: F401  (before tensorflow)
from cluster.apps.app import App, AppError
from cluster.data import Dataset
from cluster.models.network import Network, Problem
from cluster.models.objective import TASKS, Objective


def objective_of(app: App, task: str, outputs: int) -> Objective:
    """The task with the loss and the metrics that the app brings. Raises AppError if the app states another task."""
    if app.task not in (None, task):
        raise AppError(f"{app.file}: task: {app.task}, but the data are for {task}: change one of them")

    def of(name: str) -> Any:
        return (lambda targets, answers: app.call(name, targets, answers)) if app.has(name) else None

    return TASKS[task](outputs, loss=of("loss"), metrics=of("metrics"))


def network_of(app: App, dataset: Dataset, seed: int) -> Network:
    """The app's model for the examples of `dataset`, with initial values from `seed`.

    Raises AppError for a model that the cluster cannot train, with the reason and the remedy.
    """
    problem = Problem(dataset.input_shape, dataset.outputs, input_dtype=dataset.inputs.dtype)
    objective = objective_of(app, dataset.task, problem.outputs)
    network: Network
    if app.has("model"):
        from cluster.apps.keras_network import KerasNetwork

        network = KerasNetwork(app, problem, objective, seed)
    else:
        from cluster.apps.plain_network import PlainNetwork

        network = PlainNetwork(app, problem, objective, seed)
    from cluster.apps.checks import check

    check(app, network, dataset.targets)
    return network


def described(app: App, network: Network) -> dict[str, object]:
    """The `model` entry of `result.json` for an app."""
    problem, layout = network.problem, network.layout
    shape = list(problem.input_shape)
    return {
        "name": app.name,
        "app": str(app.file),
        "task": network.objective.task,
        "parameters": layout.trained_size,
        "statistics": layout.statistics_size,
        "input_shape": shape,
        "outputs": problem.outputs,
        **({"window_steps": shape[0], "channels": shape[1]} if len(shape) == 2 else {}),
        "classes": problem.outputs,
    }
