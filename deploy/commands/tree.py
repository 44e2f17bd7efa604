"""The tree of commands on click: help, completion, and the run of a command line.

One line may have several commands: `deploy stop deploy start --jobs`. All of them are read before
the first one runs, and a flag belongs to the command before it.
"""

import difflib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any

import click
from click.shell_completion import CompletionItem

from core.ground import gone
from core.ground.errors import ClusterError, ExitCode, UsageError
from core.logs import say
from deploy.commands.flags import Flag
from deploy.commands.registry import COMMANDS, GROUPS, AnyAction, takers

HELP = ("-h", "--help")
MOST_NAMED = 3
"""Commands that a message names."""
NOTHING: Mapping[str, str] = MappingProxyType({})


class _Value(click.ParamType[Any]):
    """The value of one flag as its action takes it."""

    name = "value"

    def __init__(self, flag: Flag) -> None:
        self._flag = flag

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if self._flag.read is None or not isinstance(value, str):
            return value
        return self._flag.read(f"--{self._flag.spelled}", value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        if self._flag.is_path:
            return [CompletionItem(incomplete, type="file")]
        return [CompletionItem(name) for name in self._flag.choices if name.startswith(incomplete)]


class ActionCommand(click.Command):
    """One action as click has it."""

    def __init__(self, name: str, action: AnyAction) -> None:
        self.action = action
        parameters = [parameter for flag in action.flags for parameter in _parameters(flag)]
        super().__init__(
            name,
            params=parameters,
            help=action.help,
            short_help=action.summary,
            options_metavar="[--flags]" if parameters else "",
            context_settings={"help_option_names": list(HELP), "max_content_width": 100},
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words; those behind `--` are the arguments of a program."""
        behind: tuple[str, ...] = ()
        if "--" in args:
            at = args.index("--")
            behind = tuple(args[at + 1 :])
            args = args[:at]
        remaining = super().parse_args(ctx, args)
        if ctx.resilient_parsing:  # for help, or a shell that completes a line wrong so far
            return remaining
        self._take_words_by_place(ctx)
        if behind:
            ctx.params[self._field_behind_dashes()] = behind
        return remaining

    def _take_words_by_place(self, ctx: click.Context) -> None:
        """Give a word by its place to the flag that it stands for. Raises UsageError."""
        for flag in self.action.flags:
            by_place = ctx.params.pop(_by_place(flag), None)
            if by_place is None:
                continue
            if ctx.params[flag.attribute] is not None:
                ctx.fail(f"got {by_place} and --{flag.spelled}: give one of them")
            ctx.params[flag.attribute] = by_place

    def _field_behind_dashes(self) -> str:
        for flag in self.action.flags:
            if flag.behind_dashes:
                return flag.attribute
        raise UsageError("--: only `fab job run` takes words behind it, its program's arguments")

    def invoke(self, ctx: click.Context) -> None:
        """Do it."""
        values = {name: value for name, value in ctx.params.items() if value not in (None, ())}
        self.action.run(values)


def _by_place(flag: Flag) -> str:
    """Return click's name of a word by its place: two of its parameters may not share a name."""
    return f"{flag.attribute}_by_place"


def _parameters(flag: Flag) -> list[click.Parameter]:
    """Return what click reads a flag with: a word by its place may be given as a flag too."""
    if flag.behind_dashes:
        return []
    option = f"--{flag.spelled}"
    if flag.is_switch:
        return [click.Option([option, flag.attribute], is_flag=True, help=flag.help)]
    kind = _Value(flag)
    more: dict[str, Any] = {}
    if flag.bare is not None:
        more = {"is_flag": False, "flag_value": flag.bare}
    parameters: list[click.Parameter] = [
        click.Option(
            [option, flag.attribute],
            type=kind,
            multiple=flag.is_repeatable,
            metavar=flag.metavar,
            help=flag.help,
            **more,
        )
    ]
    if flag.word:
        metavar = flag.spelled.upper()
        if not flag.needed:
            metavar = f"[{metavar}]"
        parameters.insert(
            0, click.Argument([_by_place(flag)], type=kind, required=False, metavar=metavar)
        )
    return parameters


class ActionGroup(click.Group):
    """The actions of one name, such as `deploy`; each is made when it is asked for."""

    def __init__(self, name: str, actions: Sequence[AnyAction]) -> None:
        super().__init__(
            name,
            help=f"Run one action: {', '.join(action.name for action in actions)}.",
            options_metavar="",
            subcommand_metavar="ACTION [--flags]",
            context_settings={"help_option_names": list(HELP), "max_content_width": 100},
        )
        self._actions = {action.name: action for action in actions}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of its actions."""
        return list(self._actions)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return an action, None where there is none of this name."""
        action = self._actions.get(cmd_name)
        if action is None:
            return None
        return ActionCommand(cmd_name, action)


class Tree(click.Group):
    """All commands; `pscluster` is this tree, and `fab` a door to it."""

    def __init__(self) -> None:
        super().__init__(
            "pscluster",
            options_metavar="",
            subcommand_metavar="COMMAND [--flags]",
            context_settings={"help_option_names": list(HELP), "max_content_width": 100},
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words; what a shell completes is the last command of a line."""
        if ctx.resilient_parsing:
            args = args[_last_begins(args) :]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the first words of all commands."""
        return list(dict.fromkeys(name.partition(" ")[0] for name in COMMANDS))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a group or a command of one word, None where there is none of this name."""
        if cmd_name in GROUPS:
            return ActionGroup(cmd_name, GROUPS[cmd_name])
        if cmd_name in COMMANDS:
            return ActionCommand(cmd_name, COMMANDS[cmd_name])
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Show every command, not only the groups."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, action.summary) for name, action in COMMANDS.items()])


def run(command_line: Sequence[str], program: str, foreign: Mapping[str, str] = NOTHING) -> int:
    """Run a command line and return its exit code.

    What cannot be done is one line on standard error. `foreign` says why flags are refused that no
    action has.
    """
    try:
        if any(word in HELP for word in _before_dashes(command_line)):
            say(help_for(command_line, program))
            return ExitCode.DONE
        contexts = [
            _parse(name, arguments, program, foreign) for name, arguments in calls(command_line)
        ]
        for context in contexts:
            with context:
                context.command.invoke(context)
    except ClusterError as error:
        say(error, error=True)
        return int(error.exit_code)
    except KeyboardInterrupt:
        return ExitCode.CANCELLED
    except BrokenPipeError:
        # `| head` has seen enough; Python would complain once more while it flushes stdout at its
        # end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        say(f"{error.filename or 'the system'}: {error.strerror or error}", error=True)
        return ExitCode.FAILED
    return ExitCode.DONE


def _parse(
    name: str, arguments: Sequence[str], program: str, foreign: Mapping[str, str]
) -> click.Context:
    """Read the words of one command. Raises UsageError."""
    action = COMMANDS[name]
    try:
        context = ActionCommand(name, action).make_context(f"{program} {name}", list(arguments))
    except click.NoSuchOption as problem:
        raise UsageError(_refused(name, problem.option_name, foreign)) from None
    except click.BadOptionUsage as problem:
        raise UsageError(f"{name}: {problem.option_name} takes no value") from None
    except click.UsageError as problem:
        message = problem.message[:1].lower() + problem.message[1:]
        raise UsageError(f"{name}: {message}{_file_of(action, message)}") from None
    for flag in action.flags:
        if flag.needed and context.params[flag.attribute] is None:
            raise UsageError(
                f"{name}: expected {flag.spelled.upper()}; `{program} {name} --help` explains it"
            )
    return context


def _file_of(action: AnyAction, message: str) -> str:
    """Return a question about the flag that a word too many stands for, where it is a file."""
    extra = message.removesuffix(")").partition("got unexpected extra argument (")[2]
    flags = [flag.spelled for flag in action.flags]
    if extra.endswith((".yaml", ".yml")) and "inventory" in flags:
        return f"; did you mean --inventory {extra}?"
    return ""


def _refused(name: str, option: str, foreign: Mapping[str, str]) -> str:
    """Return why a command does not take a flag."""
    if option in foreign:
        return foreign[option]
    if option in gone.FLAGS:
        return f"{name}: {option} is gone: {gone.FLAGS[option]}"
    spelled = option.removeprefix("--")
    commands = takers(spelled)
    if commands:
        quoted = ", ".join(f"`{other}`" for other in commands[:MOST_NAMED])
        return f"{name}: does not take {option}, a flag of {quoted}"
    near = difflib.get_close_matches(spelled, [flag.spelled for flag in COMMANDS[name].flags], 1)
    hint = "".join(f"; did you mean --{spelling}?" for spelling in near)
    return f"{name}: does not take {option}{hint}"


def calls(command_line: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
    """Return the commands of a line, each with its own words. Raises UsageError."""
    if not command_line:
        raise UsageError("expected a command; --list names them")
    at = 0
    while at < len(command_line):
        name, begin = _command(command_line, at)
        at = _end(name, command_line, begin)
        yield name, command_line[begin:at]


def _last_begins(command_line: Sequence[str]) -> int:
    """Return the place of the last command of a line that may be unfinished."""
    last = 0
    at = 0
    with suppress(UsageError):
        while at < len(command_line):
            last = at
            name, begin = _command(command_line, at)
            at = _end(name, command_line, begin)
    return last


def _command(command_line: Sequence[str], at: int) -> tuple[str, int]:
    """Return the command that begins at this word, and the place behind it. Raises UsageError."""
    begun = _begins(command_line, at)
    if begun is not None:
        return begun
    words_of_two = " ".join(command_line[at : at + 2]).replace(".", " ", 1)
    for former, remedy in gone.COMMANDS.items():
        if f"{words_of_two} ".startswith(f"{former} "):
            raise UsageError(f"fab {former} is gone: {remedy}")
    first, *following = command_line[at : at + 2]
    group, dot, action = first.partition(".")
    if group in GROUPS:
        actions = ", ".join(action.name for action in GROUPS[group])
        if dot:
            following = [action]
        if not following or following[0].startswith("-"):
            raise UsageError(f"{group}: expected an action, one of {actions}")
        near = _nearest(following[0], [f"{group} {action.name}" for action in GROUPS[group]])
        hint = near or _nearest(following[0], COMMANDS, cutoff=1.0)
        raise UsageError(f"{group}: no action {following[0]!r}{hint or f'; there are {actions}'}")
    if first.startswith("-"):
        raise UsageError(f"{first}: expected a command before it; --list names them")
    hint = _nearest(first, [*COMMANDS, *GROUPS])
    raise UsageError(f"no command {first!r}{hint or '; --list names them'}")


def _nearest(word: str, names: Iterable[str], cutoff: float = 0.75) -> str:
    """Return a question about the commands whose last word is the nearest, else nothing.

    `cutoff` is the least share of letters that agree.
    """
    by_last: dict[str, list[str]] = {}
    for name in names:
        by_last.setdefault(name.rpartition(" ")[2], []).append(name)
    near = difflib.get_close_matches(word.lower(), by_last, 1, cutoff)
    return "".join(f"; did you mean {' or '.join(by_last[last_word])}?" for last_word in near)


def _begins(command_line: Sequence[str], at: int) -> tuple[str, int] | None:
    """Return the command that begins at this word; `deploy.start` is `deploy start`."""
    single_word = command_line[at].replace(".", " ", 1)
    if single_word in COMMANDS:
        return single_word, at + 1
    two = " ".join(command_line[at : at + 2])
    if two in COMMANDS:
        return two, at + 2
    return None


def _end(name: str, command_line: Sequence[str], at: int) -> int:
    """Return the place behind the last word of a command. Raises UsageError."""
    flags = {f"--{declared.spelled}": declared for declared in COMMANDS[name].flags}
    missing = {declared.attribute for declared in flags.values() if declared.word}
    while at < len(command_line):
        word = command_line[at]
        if word == "--":
            return len(command_line)
        flag = flags.get(word.partition("=")[0])
        if word.startswith("-"):
            at += 1
            if flag is not None:
                missing.discard(flag.attribute)
                if flag.needs_value and "=" not in word:
                    _refuse_without_value(word, command_line[at : at + 1])
                    at += 1
        elif missing:
            missing.pop()
            at += 1
        elif word in GROUPS or _begins(command_line, at) is not None:
            return at
        else:
            at += 1
    return at


def _refuse_without_value(flag: str, behind: Sequence[str]) -> None:
    if not behind or behind[0].startswith("--"):
        raise UsageError(f"{flag}: expected a value behind it")


def _before_dashes(command_line: Sequence[str]) -> Sequence[str]:
    if "--" in command_line:
        return command_line[: command_line.index("--")]
    return command_line


def help_for(command_line: Sequence[str], program: str) -> str:
    """Return the help of the last command of a line, else of its group, else of all commands."""
    command_line = [word for word in _before_dashes(command_line) if word not in HELP]
    command: click.Command = Tree()
    name = ""
    for at, word in enumerate(command_line):
        begun = _begins(command_line, at)
        if begun is not None:
            name = begun[0]
            command = ActionCommand(name, COMMANDS[name])
        elif word in GROUPS and not name:
            name = word
            command = ActionGroup(name, GROUPS[name])
    context = command.make_context(f"{program} {name}".strip(), [], resilient_parsing=True)
    return command.get_help(context)
