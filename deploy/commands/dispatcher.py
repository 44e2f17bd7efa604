"""`fab deploy ACTION` as one task with a positional, so that its flags cannot end up at another task.

Two chained tasks would read `fab deploy start --inventory x` as `deploy` with the default inventory and then `start`
with x. A positional with a default would never take its word, so it has none.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from invoke.collection import Collection
from invoke.exceptions import Exit
from invoke.tasks import Task, task

from cluster.errors import ExitCode
from cluster.logs.terminal import visible
from deploy.commands.actions import ACTIONS
from deploy.commands.apps import APP_ACTIONS
from deploy.commands.data import DATA_ACTIONS
from deploy.commands.edge import Command, flags_of, signature
from deploy.commands.exports import export
from deploy.commands.flags import Known
from deploy.commands.inference import inference
from deploy.commands.init import init
from deploy.commands.jobs import JOB_ACTIONS, report
from deploy.commands.programs import run_
from deploy.commands.service import SERVICE_ACTIONS, serve
from deploy.commands.sweeps import sweep


def as_task(body: Command, name: str, known: Iterable[Known], positional: Sequence[str] = ()) -> Task[Command]:
    """A task without short flags: fab's own `-i` and `-H` must stay fab's."""
    flags = {one.typed: one for one in known}
    made: Task[Command] = task(
        name=name,
        positional=[*positional, *(typed for typed, one in flags.items() if one.positional)],
        help=dict.fromkeys(positional, "what to do") | {typed: one.help for typed, one in flags.items()},
        iterable=[typed for typed, one in flags.items() if one.repeatable],
        optional=[typed for typed, one in flags.items() if one.valueless],
        auto_shortflags=False,
    )(body)
    return made


def collection(name: str, bodies: Sequence[Command]) -> Collection:
    """`fab NAME ACTION --flags` and, the same, `fab NAME.ACTION --flags`, for each body by its function's name."""
    made = Collection(name)
    actions = {body.__name__.rstrip("_"): body for body in bodies}  # `list_` is `list`
    made.add_task(_dispatcher(name, actions), name="do", default=True)
    for action, body in actions.items():
        made.add_task(as_task(body, action, flags_of(body)))
    return made


def _dispatcher(name: str, actions: Mapping[str, Command]) -> Task[Command]:
    flags = {one.typed: one for body in actions.values() for one in flags_of(body)}

    def dispatch(context: Any, action: str, **given: Any) -> None:
        body = actions.get(action)
        if body is None:
            raise Exit(visible(f"{name}: no action {action!r}; there are {', '.join(actions)}"), ExitCode.BAD_USAGE)
        own = {one.typed for one in flags_of(body)}
        said = [typed for typed, value in given.items() if value not in (flags[typed].default, [])]
        alien = [typed for typed in said if typed not in own]
        if alien:
            words = ", ".join("--" + typed.rstrip("_").replace("_", "-") for typed in alien)
            raise Exit(visible(f"{name} {action}: does not take {words}"), ExitCode.BAD_USAGE)
        body(context, **{typed: value for typed, value in given.items() if typed in own})

    dispatch.__signature__ = signature(["context", "action"], flags.values())  # type: ignore[attr-defined]
    dispatch.__doc__ = f"Run one action: {', '.join(actions)}."
    return as_task(dispatch, "dispatch", flags.values(), positional=["action"])


def namespace() -> Collection:
    """`deploy`, `job`, `app`, `data` and `service` with an ACTION; `init`, `report`, `serve`, `sweep`, `export`."""
    made = Collection()
    made.add_collection(collection("deploy", ACTIONS))
    made.add_collection(collection("job", (*JOB_ACTIONS, inference, run_)))
    made.add_collection(collection("app", APP_ACTIONS))
    made.add_collection(collection("data", DATA_ACTIONS))
    made.add_collection(collection("service", SERVICE_ACTIONS))
    for body in (init, report, serve, sweep, export):
        made.add_task(as_task(body, body.__name__, flags_of(body)))
    return made
