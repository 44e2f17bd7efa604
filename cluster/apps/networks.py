"""The network that an app describes: with Keras or without."""

from pathlib import Path
from typing import Any

import cluster.engine.environment  # noqa: F401  (before tensorflow)
from cluster.apps.app import App, AppError
from cluster.models.network import Network, Problem
from cluster.models.objective import TASKS, Objective


def objective_of(app: App, outputs: int) -> Objective:
    """The app's task, with the loss and the metrics that it brings."""

    def of(name: str) -> Any:
        return (lambda targets, answers: app.call(name, targets, answers)) if app.has(name) else None

    return TASKS[app.task](outputs, loss=of("loss"), metrics=of("metrics"))


def network_of(app: App, problem: Problem, targets: tuple[int, ...], seed: int) -> Network:
    """The app's model for examples of `problem` and targets of shape `targets` each, with initial values from `seed`.

    Raises AppError for a model that the cluster cannot train, with the reason and the remedy.
    """
    objective = objective_of(app, problem.outputs)
    network: Network
    if app.has("model"):
        from cluster.apps.keras_network import KerasNetwork

        network = KerasNetwork(app, problem, objective, seed)
    else:
        from cluster.apps.plain_network import PlainNetwork

        network = PlainNetwork(app, problem, objective, seed)
    from cluster.apps.checks import check

    check(app, network, targets)
    return network


def described(app: App, network: Network) -> dict[str, object]:
    """The `model` entry of `result.json` for an app."""
    problem, layout = network.problem, network.layout
    shape = list(problem.input_shape)
    if not layout.trained_size:
        raise AppError(f"{app.file}: the model has no weight to train: set trainable = True on a layer")
    return {
        "name": Path(app.file).parent.name if app.file.name == "app.py" else app.file.stem,
        "app": str(app.file),
        "task": network.objective.task,
        "parameters": layout.trained_size,
        "statistics": layout.statistics_size,
        "input_shape": shape,
        "outputs": problem.outputs,
        **({"window_steps": shape[0], "channels": shape[1]} if len(shape) == 2 else {}),
        "classes": problem.outputs,
    }
