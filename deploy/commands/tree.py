"""The tree of commands on click: help, completion, and the run of a command line."""

import difflib
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import click
from click.shell_completion import CompletionItem

from core.ground import gone
from core.ground.errors import ClusterError, ExitCode, UsageError
from core.logs import say
from deploy.commands.flags import Flag
from deploy.commands.registry import COMMANDS, GROUPS, AnyAction, takers

MOST_NAMED = 3
"""Commands that a message names."""
NOTHING: Mapping[str, str] = MappingProxyType({})


class _Value(click.ParamType[Any]):
    """The value of one flag as its action takes it."""

    name = "value"

    def __init__(self, flag: Flag) -> None:
        self._flag = flag

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and value.startswith("--"):
            raise UsageError(f"--{self._flag.spelled}: expected a value behind it")
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
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words; those behind `--` are the arguments of a program."""
        behind: tuple[str, ...] = ()
        if "--" in args:
            at = args.index("--")
            behind = tuple(args[at + 1 :])
            args = args[:at]
        try:
            remaining = super().parse_args(ctx, args)
        except click.BadOptionUsage as problem:
            problem.ctx = ctx  # which click's parser leaves out
            raise
        if ctx.resilient_parsing:  # for a shell that completes a line wrong so far
            return remaining
        for flag in self.action.flags:
            by_place = ctx.params.pop(_by_place(flag), None)
            if by_place is not None and ctx.params[flag.attribute] is not None:
                ctx.fail(f"got {by_place} and --{flag.spelled}: give one of them")
            if by_place is not None:
                ctx.params[flag.attribute] = by_place
            if flag.needed and ctx.params[flag.attribute] is None:
                ctx.fail(
                    f"expected {flag.spelled.upper()}; `{ctx.command_path} --help` explains it"
                )
        if behind:
            ctx.params[self._field_behind_dashes()] = behind
        return remaining

    def _field_behind_dashes(self) -> str:
        for flag in self.action.flags:
            if flag.behind_dashes:
                return flag.attribute
        raise UsageError("--: only `fab job run` takes words behind it, its program's arguments")

    def invoke(self, ctx: click.Context) -> None:
        """Do it."""
        values = {name: value for name, value in ctx.params.items() if value not in (None, ())}
        self.action.run(values)

    def refusal(self, name: str, problem: click.UsageError, foreign: Mapping[str, str]) -> str:
        """Return why these words of the command are refused."""
        match problem:
            case click.NoSuchOption():
                return self._unknown(name, problem.option_name, foreign)
            case click.BadOptionUsage() if "requires" in problem.message:
                return f"{problem.option_name}: expected a value behind it"
            case click.BadOptionUsage():
                return f"{name}: {problem.option_name} takes no value"
        message = problem.message.replace("arguments (", "arguments: a line is one command (")
        message = message[0].lower() + message[1:]
        extra = message.removesuffix(")").partition("got unexpected extra argument (")[2]
        flags = [flag.spelled for flag in self.action.flags]
        if extra.endswith((".yaml", ".yml")) and "inventory" in flags:
            message += f"; did you mean --inventory {extra}?"
        return f"{name}: {message}"

    def _unknown(self, name: str, option: str, foreign: Mapping[str, str]) -> str:
        if option in foreign:
            return foreign[option]
        if option in gone.FLAGS:
            return f"{name}: {option} is gone: {gone.FLAGS[option]}"
        spelled = option.removeprefix("--")
        commands = takers(spelled)
        if commands:
            quoted = ", ".join(f"`{other}`" for other in commands[:MOST_NAMED])
            return f"{name}: does not take {option}, a flag of {quoted}"
        near = difflib.get_close_matches(spelled, [flag.spelled for flag in self.action.flags], 1)
        hint = "".join(f"; did you mean --{spelling}?" for spelling in near)
        return f"{name}: does not take {option}{hint}"


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
        self._actions = {action.name: action for action in actions}
        super().__init__(
            name,
            help=f"Run one action: {', '.join(self._actions)}.",
            options_metavar="",
            subcommand_metavar="ACTION [--flags]",
            no_args_is_help=False,
        )

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of its actions."""
        return list(self._actions)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return an action; None while a shell completes one. Raises UsageError."""
        if cmd_name in self._actions:
            return ActionCommand(cmd_name, self._actions[cmd_name])
        if ctx.resilient_parsing:
            return None
        _refuse_gone(f"{self.name} {cmd_name}")
        near = _nearest(cmd_name, [f"{self.name} {action}" for action in self._actions])
        hint = near or _nearest(cmd_name, COMMANDS, cutoff=1.0)
        hint = hint or f"; there are {', '.join(self._actions)}"
        raise UsageError(f"{self.name}: no action {cmd_name!r}{hint}")

    def refusal(self, name: str, problem: click.UsageError, foreign: Mapping[str, str]) -> str:
        """Return why these words are refused: no action is among them."""
        return f"{name}: expected an action, one of {', '.join(self._actions)}"


class Tree(click.Group):
    """All commands; `pscluster` is this tree, and `fab` a door to it."""

    def __init__(self) -> None:
        super().__init__(
            "pscluster",
            options_metavar="",
            subcommand_metavar="COMMAND [--flags]",
            no_args_is_help=False,
            context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words; `deploy.start`, as `fab --list` shows it, is `deploy start`."""
        first, dot, action = "".join(args[:1]).partition(".")
        if dot and first in GROUPS:
            args = [first, action, *args[1:]]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the first words of all commands."""
        return list(dict.fromkeys(name.partition(" ")[0] for name in COMMANDS))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a group or a command; None while a shell completes one. Raises UsageError."""
        if cmd_name in GROUPS:
            return ActionGroup(cmd_name, GROUPS[cmd_name])
        if cmd_name in COMMANDS:
            return ActionCommand(cmd_name, COMMANDS[cmd_name])
        if ctx.resilient_parsing:
            return None
        _refuse_gone(cmd_name)
        hint = _nearest(cmd_name, [*COMMANDS, *GROUPS]) or "; --list names them"
        raise UsageError(f"no command {cmd_name!r}{hint}")

    def refusal(self, name: str, problem: click.UsageError, foreign: Mapping[str, str]) -> str:
        """Return why these words are refused: no command is among them."""
        if isinstance(problem, click.NoSuchOption):
            return f"{problem.option_name}: expected a command before it; --list names them"
        return "expected a command; --list names them"

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Show every command, not only the groups."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, action.summary) for name, action in COMMANDS.items()])


def _refuse_gone(name: str) -> None:
    """Raise UsageError for a command of before."""
    if name in gone.COMMANDS:
        raise UsageError(f"fab {name} is gone: {gone.COMMANDS[name]}")


def _nearest(word: str, names: Iterable[str], cutoff: float = 0.75) -> str:
    """Return a question about the commands whose last word is the nearest, else nothing.

    `cutoff` is the least share of letters that agree.
    """
    by_last: dict[str, list[str]] = {}
    for name in names:
        by_last.setdefault(name.rpartition(" ")[2], []).append(name)
    near = difflib.get_close_matches(word.lower(), by_last, 1, cutoff)
    return "".join(f"; did you mean {' or '.join(by_last[last_word])}?" for last_word in near)


def run(command_line: Sequence[str], program: str, foreign: Mapping[str, str] = NOTHING) -> int:
    """Run a command line and return its exit code.

    What cannot be done is one line on standard error. `foreign` says why flags are refused that no
    action has.
    """
    try:
        _invoke(command_line, program, foreign)
    except click.exceptions.Exit as ended:  # after help
        return ended.exit_code
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


def _invoke(command_line: Sequence[str], program: str, foreign: Mapping[str, str]) -> None:
    """Read the words and do what they say. Raises UsageError."""
    tree = Tree()
    try:
        with tree.make_context(program, list(command_line)) as context:
            tree.invoke(context)
    except click.UsageError as problem:
        refused = problem.ctx
        assert refused is not None  # `parse_args` gives it one
        command = refused.command
        assert isinstance(command, ActionCommand | ActionGroup | Tree)
        name = refused.command_path.removeprefix(program).strip()
        raise UsageError(command.refusal(name, problem, foreign)) from None
