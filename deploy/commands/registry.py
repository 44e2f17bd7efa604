"""Every action by what a person types. No module here loads what reads a command line."""

from collections.abc import Mapping, Sequence
from typing import Any

from deploy.commands.action import Action
from deploy.commands.actions import check, plan, restart, start, status, stop
from deploy.commands.apps import check as check_app
from deploy.commands.apps import new
from deploy.commands.begun_jobs import attach, cancel, list_
from deploy.commands.completion import completion
from deploy.commands.data import fetch, show
from deploy.commands.exports import export
from deploy.commands.init import init
from deploy.commands.jobs import cv, evaluate, pi, train
from deploy.commands.logs import logs
from deploy.commands.machine_actions import monitor, push, reset, rollback, ssh, storage, trust
from deploy.commands.programs import run_
from deploy.commands.render import render
from deploy.commands.report import report
from deploy.commands.service import list_ as list_versions
from deploy.commands.service import promote, serve, token
from deploy.commands.service import rollback as rollback_version
from deploy.commands.sweeps import sweep

Found = Action[Any]

GROUPS: Mapping[str, Sequence[Found]] = {
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
ALONE: Sequence[Found] = (init, report, serve, sweep, export, completion)

COMMANDS: Mapping[str, Found] = {
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
