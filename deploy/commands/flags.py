"""How an action declares its flags: a class with an attribute for each.

Here are those that many actions share.

    class StopFlags(ClusterFlags):
        limit: Names = names("only these nodes")

The functions below declare them. A name that Python uses already ends with `_`: `set_` is --set.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self, TypeVar, dataclass_transform

from deploy.commands.values import whole_number

Names = tuple[str, ...]
"""The values of a flag that may be repeated."""

Read = Callable[[str, str], Any]
"""Reader of a flag and its text into the value. Raises UsageError."""

MOST = 10**15
"""The largest number of a flag that has no limit of its own."""


@dataclass
class Flag:
    """One flag on the command line, or one word of it that stands without a flag.

    `key` is the key of the inventory that the flag stands for. A `bare` flag may stand without a
    value and then has this one. A `word` is an argument by its place; one that is `needed` is
    refused when it is missing. A `default` of False is that of a switch, a tuple that of a flag
    that may be repeated.
    """

    help: str
    default: Any = None
    metavar: str = "VALUE"
    read: Read | None = None
    key: str = ""
    spelled: str = ""
    choices: Names = ()
    is_path: bool = False
    bare: str | None = None
    word: bool = False
    needed: bool = False
    behind_dashes: bool = False
    attribute: str = ""

    def __set_name__(self, _owner: type, name: str) -> None:
        self.attribute = name
        self.spelled = self.spelled or name.rstrip("_").replace("_", "-")

    @property
    def is_switch(self) -> bool:
        """Whether it takes no value."""
        return self.default is False

    @property
    def is_repeatable(self) -> bool:
        """Whether it may be given several times."""
        return isinstance(self.default, tuple)

    @property
    def needs_value(self) -> bool:
        """Whether the next word is always its value."""
        return not self.is_switch and self.bare is None


def text(meaning: str, default: Any = None, **more: Any) -> Any:
    """Declare a flag with a value."""
    return Flag(meaning, default, **more)


def path(meaning: str, **more: Any) -> Any:
    """Declare a flag with a file or folder."""
    return Flag(meaning, metavar="PATH", is_path=True, **more)


def switch(meaning: str, **more: Any) -> Any:
    """Declare a flag without a value."""
    return Flag(meaning, False, **more)


def names(meaning: str, **more: Any) -> Any:
    """Declare a flag that may be repeated."""
    return Flag(meaning, (), **more)


def number(meaning: str, low: int, high: int, default: int | None = None, **more: Any) -> Any:
    """Declare a flag with a whole number from `low` to `high`."""

    def read(flag: str, value: str) -> int:
        return whole_number(flag, value, low, high)

    return Flag(meaning, default, metavar="N", read=read, **more)


def word(meaning: str, *, needed: bool = True, **more: Any) -> Any:
    """Declare an argument that stands by its place; the flag of its name means the same."""
    return Flag(meaning, word=True, needed=needed, **more)


def serial_flag() -> Any:
    """Declare the flag of how many nodes are restarted at a time."""
    return number("restart so many nodes at a time; 0 is all at once", 0, 1024, 0)


def behind_dashes(meaning: str) -> Any:
    """Declare the words behind `--`."""
    return Flag(meaning, (), behind_dashes=True)


@dataclass_transform(kw_only_default=True, frozen_default=True)
class ActionFlags:
    """The flags of an action; an object of it has the values of one call.

    It is made like a dataclass. A real one of each action would take a Pi a quarter of a second
    before it lists the commands.
    """

    def __init__(self, **values: Any) -> None:
        for flag in self.declared():
            setattr(self, flag.attribute, values.pop(flag.attribute, flag.default))
        if values:
            raise TypeError(f"{type(self).__name__}: unexpected {', '.join(values)}")

    @classmethod
    def declared(cls) -> list[Flag]:
        """Return its flags, those of its bases first."""
        flags: dict[str, Flag] = {}
        for base in reversed(cls.__mro__):
            flags |= {name: flag for name, flag in vars(base).items() if isinstance(flag, Flag)}
        return list(flags.values())

    def but(self, **changes: Any) -> Self:
        """Return the same flags with some other values."""
        return type(self)(**{**vars(self), **changes})


class ClusterFlags(ActionFlags):
    """The flags of every action that works on a cluster."""

    inventory: str | None = path(
        "the cluster's file; else $PSCLUSTER_INVENTORY, else ./inventory.yaml"
    )
    set_: Names = names(
        "override a key of the inventory for this call, e.g. jobs.train.epochs=3 (repeatable)",
        metavar="KEY=VALUE",
    )

    @property
    def for_programs(self) -> bool:
        """Whether standard output is for a program."""
        return False


class JsonFlags(ClusterFlags):
    """The flags of an action that can answer programs."""

    json_: bool = switch("one JSON object for programs instead of text for people")

    @property
    def for_programs(self) -> bool:
        """Whether standard output is for a program."""
        return self.json_


class LimitFlags(ClusterFlags):
    """The flags of an action on some nodes."""

    limit: Names = names("only these nodes, by name or by role (repeatable, or with commas)")


class AnsweredFlags(LimitFlags):
    """The flags of an action that asks before it does anything."""

    yes: bool = switch("do not ask")


class RoleFlags(ClusterFlags):
    """The flags of an action on some roles."""

    role: Names = names("only this role: ps, worker or e.g. worker:1 (repeatable)")
    node: Names = names("only the roles of this node (repeatable)")


class TrustFlags(ActionFlags):
    """The flag of an action that may run the code of a run."""

    trust_app: str | None = text(
        "digest of an app: from now on it is your own, and its code in a run may run"
    )


class LogFlags(ActionFlags):
    """How a job logs."""

    log_format: str | None = text(
        "format of the logs: text, or json for one JSON object a line",
        key="logging.format",
        choices=("text", "json"),
    )
    log_level: str | None = text(
        "the least that is logged: debug, info, warning or error",
        key="logging.level",
        choices=("debug", "info", "warning", "error"),
    )


class JobFlags(LogFlags, JsonFlags):
    """The flags of every job."""

    quiet: bool = switch("no progress of jobs")


OfCluster = TypeVar("OfCluster", bound=ClusterFlags)


def with_overrides(flags: OfCluster) -> OfCluster:
    """Return the flags with those that stand for a key of the inventory as overrides.

    These come before the ones of --set, which win. Text is quoted as YAML reads it.
    """
    overrides = []
    for flag in flags.declared():
        value = getattr(flags, flag.attribute)
        is_given = value is not None and value is not False
        if flag.key and is_given:
            overrides.append(f"{flag.key}={json.dumps(value)}")
    return flags.but(set_=(*overrides, *flags.set_))


def as_words(flags: ActionFlags, *attributes: str) -> list[str]:
    """Return these flags as far as they are given, as a process of another room takes them."""
    arguments = []
    for flag in flags.declared():
        value = getattr(flags, flag.attribute)
        if flag.attribute not in attributes or value is None or value is False:
            continue
        if flag.is_switch:
            arguments.append(f"--{flag.spelled}")
        elif flag.is_repeatable:
            arguments += [f"--{flag.spelled}={entry}" for entry in value]
        elif value != "":
            arguments.append(f"--{flag.spelled}={value}")
    return arguments
