"""`fab deploy ACTION` as one task with a positional, so that its flags cannot end up at another task.

Two chained tasks would read `fab deploy start --inventory x` as `deploy` with the default inventory and then `start`
with x. A positional with a default would never take its word, so it has none.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as Collected
from typing import Any

from invoke.collection import Collection
from invoke.exceptions import Exit
from invoke.tasks import Task, task

from cluster.errors import ExitCode
from cluster.logs.terminal import visible
from deploy.commands.actions import ACTIONS
from deploy.commands.flags import HELP, OPTIONAL, REPEATABLE
from deploy.commands.init import init
from deploy.commands.jobs import JOB_ACTIONS, REPORT_HELP, report

Body = Callable[..., None]


def as_task(
    body: Body,
    name: str | None = None,
    own_help: Mapping[str, str] | None = None,
    repeatable: Collected[str] = REPEATABLE,
) -> Task[Body]:
    """A task without short flags: fab's own `-i` and `-H` must stay fab's.

    `own_help` goes before what `HELP` says of a flag, for one that means something else here.
    """
    parameters = list(inspect.signature(body).parameters)[1:]
    made: Task[Body] = task(
        name=name or body.__name__,
        help={parameter: (own_help or {}).get(parameter) or HELP[parameter] for parameter in parameters},
        iterable=[parameter for parameter in parameters if parameter in repeatable],
        optional=[parameter for parameter in parameters if parameter in OPTIONAL],
        auto_shortflags=False,
    )(body)
    return made


def collection(name: str, positional: str, bodies: Sequence[Body]) -> Collection:
    """`fab NAME WORD --flags` and, the same, `fab NAME.WORD --flags`, for each body by its function's name."""
    made = Collection(name)
    actions = {body.__name__.rstrip("_"): body for body in bodies}  # `list_` is `list`
    made.add_task(_dispatcher(name, positional, actions), name="do", default=True)
    for word in actions:
        made.add_task(as_task(actions[word], word))
    return made


def _dispatcher(name: str, positional: str, actions: Mapping[str, Body]) -> Task[Body]:
    flags: dict[str, inspect.Parameter] = {}
    for word, body in actions.items():
        for parameter in list(inspect.signature(body).parameters.values())[1:]:
            known = flags.setdefault(parameter.name, parameter)
            if known.default != parameter.default:
                raise RuntimeError(f"{name} {word}: --{parameter.name} has another default than in another action")

    def dispatch(context: Any, **given: Any) -> None:
        word = given.pop(positional)
        body = actions.get(word)
        if body is None:
            raise Exit(visible(f"{name}: no {positional} {word!r}; there are {', '.join(actions)}"), ExitCode.BAD_USAGE)
        takes = inspect.signature(body).parameters
        alien = [flag for flag, value in given.items() if flag not in takes and value not in (flags[flag].default, [])]
        if alien:
            words = ", ".join("--" + flag.rstrip("_").replace("_", "-") for flag in alien)
            raise Exit(visible(f"{name} {word}: does not take {words}"), ExitCode.BAD_USAGE)
        body(context, **{flag: value for flag, value in given.items() if flag in takes})

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    own = [inspect.Parameter("context", kind), inspect.Parameter(positional, kind)]
    dispatch.__signature__ = inspect.Signature([*own, *flags.values()])  # type: ignore[attr-defined]
    dispatch.__doc__ = f"Run one {positional}: {', '.join(actions)}."
    made: Task[Body] = task(
        positional=[positional],
        iterable=[flag for flag in flags if flag in REPEATABLE],
        optional=[flag for flag in flags if flag in OPTIONAL],
        help={positional: HELP[positional], **{flag: HELP[flag] for flag in flags}},
        auto_shortflags=False,
    )(dispatch)
    return made


def namespace() -> Collection:
    """`deploy ACTION`, `job ACTION`, `init` and `report`."""
    made = Collection()
    made.add_collection(collection("deploy", "action", ACTIONS))
    made.add_collection(collection("job", "action", JOB_ACTIONS))
    made.add_task(as_task(init))
    made.add_task(as_task(report, own_help=REPORT_HELP, repeatable=frozenset({"run"})))
    return made
