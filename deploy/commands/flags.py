"""How an action declares its flags, a class with an attribute for each, and how values are read.

    class StopFlags(ClusterFlags):
        limit: Names = names("only these nodes")

The functions below declare them and read numbers, times, intervals and paths as people type them. A
name that Python uses already ends with `_`: `set_` is --set. Here are those that many actions
share.
"""

import json
import math
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Self, TypeVar, dataclass_transform

from core.ground.errors import UsageError

USUAL_SECONDS = 2.0
SHORTEST_SECONDS = 0.2
LONGEST_SECONDS = 3600.0

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_AGO = re.compile(
    r"-?\s*(?P<count>\d{1,9})"
    r"\s*(?P<unit>s|sec|seconds?|m|min|minutes?|h|hours?|d|days?|w|weeks?)"
    r"(?P<ago>\s+ago)?"
)
_MONTHS = re.compile(r"\d\s*M\b")
"""Months in journalctl: refused, because a person who means minutes would get them, or the other
way round."""
_TIMES = ("%H:%M", "%H:%M:%S")


def whole_number(flag: str, text: str, low: int, high: int) -> int:
    """Return the value of a flag: `1000000`, `1_000_000` or `1e6`.

    Raises UsageError unless it is from `low` to `high`.
    """
    try:
        number = int(text)
    except ValueError:
        real = float_of(text)
        number = low - 1
        if real.is_integer():  # neither nan nor inf
            number = int(real)
    if not low <= number <= high:
        raise UsageError(f"{flag}: expected a whole number from {low} to {high}, got {text!r}")
    return number


def real_number(flag: str, text: str, low: float, high: float) -> float:
    """Return the value of a flag. Raises UsageError unless it is a number from `low` to `high`."""
    number = float_of(text)
    if not low <= number <= high:
        raise UsageError(f"{flag}: expected a number from {low:g} to {high:g}, got {text!r:.80}")
    return number


def float_of(text: str) -> float:
    """Return the number, not a number for a text that is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def interval(flag: str, text: str) -> float:
    """Return the seconds of `--watch [SECONDS]`.

    Raises UsageError for what is no number of seconds.
    """
    seconds = float_of(text)
    if not SHORTEST_SECONDS <= seconds <= LONGEST_SECONDS:
        raise UsageError(
            f"{flag}: expected seconds from {SHORTEST_SECONDS} to {LONGEST_SECONDS:.0f}, or"
            f" nothing, got {text!r}"
        )
    return seconds


def time_from_now(_flag: str, text: str) -> float:
    """Return the time of `--since` in seconds since the epoch."""
    return seconds_of(text, datetime.now().astimezone())


def seconds_of(since: str, now: datetime) -> float:
    """Return the time that `--since` means, in seconds since the epoch.

    It takes `10 min ago`, `-2h`, `today`, `22:45`, `2026-11-21 22:45`, ISO 8601. A time without a
    zone is this machine's, as `now` is. No node gets the text: its zone may differ, and journalctl
    252 refuses `2026-11-21T22:45:01Z`. Raises UsageError for anything else.
    """
    normalized = since.strip().lower()
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    named = {"now": now, "today": midnight, "yesterday": midnight - timedelta(days=1)}
    if normalized in named:
        return named[normalized].timestamp()
    ago = _AGO.fullmatch(normalized)
    if ago and (ago["ago"] or normalized.startswith("-")) and not _MONTHS.search(since):
        return now.timestamp() - int(ago["count"]) * _SECONDS[ago["unit"][0]]
    for form in _TIMES:
        try:
            clock = datetime.strptime(normalized, form).time()
        except ValueError:
            continue
        return datetime.combine(midnight, clock, midnight.tzinfo).timestamp()
    try:
        moment = datetime.fromisoformat(normalized.removesuffix(" utc").upper())
        if normalized.endswith(" utc"):
            moment = moment.replace(tzinfo=UTC)
        return moment.timestamp()
    except (ValueError, OverflowError):
        raise UsageError(
            "--since: expected a time such as '10 min ago', 'today', '22:45' or '2026-11-21"
            f" 22:45', got {since!r}"
        ) from None


def from_here(_flag: str, path: str) -> str:
    """Return the absolute path of what a person named from the working folder."""
    if not path:
        return path
    return os.path.abspath(os.path.expanduser(path))


def format_or_file(flag: str, value: str) -> str:
    """Return the name of a format as it is, and the absolute path of a file."""
    if value.lower().endswith((".yaml", ".yml")):
        return from_here(flag, value)
    return value


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
    return number("number of nodes to restart at a time; 0: all at once", 0, 1024, 0)


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

    trust_app: str | None = text("digest of an app that you trust: from now on its code may run")


class LogFlags(ActionFlags):
    """How a job logs."""

    log_format: str | None = text(
        "format of the logs: text, or json for one JSON object a line",
        key="logging.format",
        choices=("text", "json"),
    )
    log_level: str | None = text(
        "lowest level that is logged: debug, info, warning or error",
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
