"""Every action by what a person types. No module here loads what reads a command line."""

from collections.abc import Mapping, Sequence
from typing import Any

from deploy.commands.action import Action
from deploy.commands.actions import check, plan, restart, start, status, stop
from deploy.commands.apps import check as check_app
from deploy.commands.apps import fetch, new, show
from deploy.commands.forecasts import forecast
from deploy.commands.jobs import attach, cancel, cv, evaluate, list_, pi, run_, train
from deploy.commands.logs import logs
from deploy.commands.machine_actions import (
    monitor,
    push,
    render,
    reset,
    rollback,
    ssh,
    storage,
    trust,
)
from deploy.commands.service import list_ as list_versions
from deploy.commands.service import promote, serve, token
from deploy.commands.service import rollback as rollback_version
from deploy.commands.sweeps import sweep
from deploy.commands.ungrouped import completion, export, init, report

AnyAction = Action[Any]

GROUPS: Mapping[str, Sequence[AnyAction]] = {
    "deploy": (
        check,
        plan,
        push,
        storage,
        start,
        stop,
        restart,
        status,
        logs,
        rollback,
        reset,
        trust,
        monitor,
        render,
        ssh,
    ),
    "job": (train, cv, evaluate, pi, list_, attach, cancel, run_),
    "app": (new, check_app),
    "data": (fetch, show),
    "service": (promote, rollback_version, list_versions, token),
}
ALONE: Sequence[AnyAction] = (init, forecast, report, serve, sweep, export, completion)

COMMANDS: Mapping[str, AnyAction] = {
    **{f"{group} {action.name}": action for group, actions in GROUPS.items() for action in actions},
    **{action.name: action for action in ALONE},
}
"""`deploy start`, `init` and so on, with their actions."""


def takers(spelled: str) -> list[str]:
    """Return the commands that take a flag."""
    return [
        name
        for name, action in COMMANDS.items()
        if spelled in [flag.spelled for flag in action.flags]
    ]
