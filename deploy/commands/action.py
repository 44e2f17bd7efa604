"""An action of the tree of commands: its flags, what it does, and how it ends."""

import inspect
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NoReturn, TypeVar

from cluster.apps.files import trust
from core.ground.errors import ExitCode
from deploy.commands.flags import ActionFlags, ClusterFlags, Flag, TrustFlags
from deploy.common.interrupts import a_command_begins
from deploy.common.project import environment_for_any_folder, module_command

CONTRACT = frozenset(
    {ExitCode.DONE, ExitCode.FAILED, ExitCode.BAD_USAGE, ExitCode.DEGRADED, ExitCode.CANCELLED}
)
"""Exit codes that a script may meet (docs/commands.md). The other codes are between role
processes and their supervisor."""

Given = TypeVar("Given", bound=ActionFlags)


@dataclass(frozen=True)
class Action(Generic[Given]):
    """What a person can type: `kind` is the class of its flags, and `body` does it."""

    kind: type[Given]
    body: Callable[[Given], None]

    def __call__(self, flags: Given) -> None:
        """Do it with these flags."""
        self.body(flags)

    @property
    def name(self) -> str:
        """The last word of the command; `list_` is `list`."""
        return self.body.__name__.rstrip("_")

    @property
    def help(self) -> str:
        """The docstring of `body`, which `--help` shows."""
        return inspect.getdoc(self.body) or ""

    @property
    def summary(self) -> str:
        """The first line of `help`."""
        return self.help.partition("\n")[0]

    @property
    def flags(self) -> list[Flag]:
        """The flags that it takes, and no others."""
        return self.kind.declared()

    def run(self, values: Mapping[str, Any]) -> None:
        """Do it with these values of its flags; the others keep their defaults.

        An app that `--trust-app` names counts as trusted from here on.
        """
        if issubclass(self.kind, ClusterFlags):
            # Before Ctrl-C is an exception: pydantic wraps one that hits it while it builds a
            # schema in an error of its own.
            import core.inventory.loading  # noqa: F401
        a_command_begins()
        flags = self.kind(**values)
        if isinstance(flags, TrustFlags) and flags.trust_app is not None:
            trust(flags.trust_app)
        self.body(flags)
        sys.stdout.flush()


def takes(kind: type[Given]) -> Callable[[Callable[[Given], None]], Action[Given]]:
    """Return what makes an action of a function of these flags."""

    def action_of(body: Callable[[Given], None]) -> Action[Given]:
        return Action(kind, body)

    return action_of


def end_degraded() -> NoReturn:
    """End the command: the cluster is not as it should be."""
    sys.exit(ExitCode.DEGRADED)


def end_as_the_job_did(code: int) -> None:
    """End the command unless the job is done (0).

    A job's code outside the contract is a failure like any other.
    """
    if not code:
        return
    if code not in CONTRACT:
        code = ExitCode.FAILED
    sys.exit(int(code))


def run_module(module: str, *arguments: str) -> None:
    """Run a module of another room in a process of its own.

    Where that fails, the command ends as it did.
    """
    command = module_command(module, *arguments)
    end_as_the_job_did(subprocess.run(command, env=environment_for_any_folder()).returncode)
