"""`fab`, the door to the tree of commands: Fabric reads its own flags before the first command.

Everything from there on is the tree's. Fabric and invoke take their own flags behind a command too,
and some promise what nothing here does, such as `--dry`: each is refused with what to type instead.
"""

import sys
from collections.abc import Mapping
from typing import Any

from invoke.collection import Collection
from invoke.exceptions import Exit
from invoke.tasks import Task

from core.ground.errors import ExitCode
from core.logs import visible
from deploy.commands.completing import answers_shell
from deploy.commands.registry import COMMANDS

_MEANT = {
    "dry": (
        "--dry: nothing here would be dry; `--dry-run` of `deploy start` shows the plan and changes"
        " nothing"
    ),
    "H": "-H/--hosts: the inventory says which machines; leave it out",
    "i": (
        "-i/--identity: name the key in the inventory's `ssh.key`, or for one call with --set"
        " ssh.key=FILE"
    ),
    "t": "-t/--connect-timeout: the inventory's `ssh.connect_seconds` says it",
    "S": "-S/--ssh-config: OpenSSH reads its own files, and no other",
    "config": "-f/--config: no configuration of invoke's is read; leave it out",
    "hide": "--hide: --quiet leaves the progress of jobs out",
    "prompt-for-login-password": (
        "--prompt-for-login-password: a login takes a key alone; `ssh-copy-id` brings it"
    ),
    "prompt-for-passphrase": "--prompt-for-passphrase: load the key into the agent (`ssh-add`)",
    "prompt-for-sudo-password": (
        "--prompt-for-sudo-password: the account needs sudo without a password"
    ),
}
"""Remedies by the first name that Fabric or invoke gives a flag."""
_ALLOWED = frozenset({"collection", "debug", "no-dedupe", "search-root", "help", "list"})
"""Flags that find and call the commands and do not change what they do."""


def namespace(program: Any) -> Collection:
    """Return what Fabric lists, or the one task that runs the words behind Fabric's own flags.

    Raises Exit for a flag of Fabric's that has no meaning here.
    """
    argv = getattr(program, "argv", None)
    core = getattr(program, "core", None)
    if argv is None or core is None:  # something else reads the fabfile
        return _listed()
    if answers_shell("fab"):
        raise Exit(None, ExitCode.DONE)
    command_line = _typed_words(argv, core)
    help_topic = core[0].args["help"].value
    if isinstance(help_topic, str):  # `--help deploy start`: Fabric took the word behind its flag
        raise Exit(None, _run([help_topic, *command_line, "--help"], {}))
    if core[0].args["list"].got_value:
        return _listed()
    if (
        not command_line
        and {name for name, flag in core[0].args.items() if flag.got_value} <= _ALLOWED
    ):
        raise Exit(None, _run(["--help"], {}))
    if not command_line:
        return _listed()
    for argument in core[0].args.values():
        if argument.got_value and argument.name not in _ALLOWED:
            raise Exit(visible(_why(argument.name)), ExitCode.BAD_USAGE)
    config = getattr(program, "config", None)
    if config is not None and "load_ssh_configs" in config:
        # paramiko's parser fails on what OpenSSH reads; see deploy/cluster/openssh.py
        config.load_ssh_configs = False
    core.remainder = ""
    core.unparsed[:] = ["typed"]
    return _one_task(command_line, _foreign(core))


def _typed_words(argv: list[str], core: Any) -> list[str]:
    """Return what stands behind Fabric's own flags, as a person typed it."""
    command_line = list(core.unparsed)
    if command_line and "--" in argv:
        command_line += argv[argv.index("--") :]  # Fabric joins these words into one text
    return command_line


def _one_task(command_line: list[str], foreign: Mapping[str, str]) -> Collection:
    def typed(_context: Any) -> None:
        sys.exit(_run(command_line, foreign))

    return Collection(typed=Task(typed))


def _run(command_line: list[str], foreign: Mapping[str, str]) -> int:
    from deploy.commands.tree import run

    return run(command_line, "fab", foreign)


def _foreign(core: Any) -> dict[str, str]:
    """Return why each flag of Fabric's and invoke's is refused behind a command."""
    refusals = {}
    for argument in core[0].args.values():
        for name in argument.names:
            if len(name) == 1:
                dashes = "-"
            else:
                dashes = "--"
            refusals[f"{dashes}{name}"] = _why(argument.name)
    return refusals


def _why(name: str) -> str:
    if name in _MEANT:
        return _MEANT[name]
    if name in _ALLOWED:
        return f"--{name}: it stands before the command"
    return f"--{name}: it has no meaning here; leave it out"


def _listed() -> Collection:
    """Return the commands for `fab --list`, which runs none of them."""
    root = Collection()
    groups: dict[str, Collection] = {}
    for name, action in COMMANDS.items():
        group, space, last = name.partition(" ")
        task: Task[Any] = Task(_only_listed, name=last or group)
        task.__doc__ = action.help
        if not space:
            root.add_task(task)
            continue
        if group not in groups:
            groups[group] = Collection(group)
            root.add_collection(groups[group])
        groups[group].add_task(task)
    return root


def _only_listed(_context: Any) -> None:
    raise AssertionError("this task is only listed")
