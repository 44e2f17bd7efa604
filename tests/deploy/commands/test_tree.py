"""How a line is read: words by their place, several commands, and completion in a shell."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from core.errors import UsageError
from deploy.commands.completion import SHELLS, script, variable
from deploy.commands.reference import render
from deploy.commands.registry import COMMANDS
from deploy.commands.tree import ActionCommand, Tree, calls
from deploy.common.project import ROOT
from tests.deploy.typed import PROGRAM
from tests.habits import needs
from tests.ran import program


def read(line: str) -> list[tuple[str, dict[str, object]]]:
    """The commands of a line with what was given to each."""
    found = []
    for name, words in calls(line.split()):
        context = ActionCommand(name, COMMANDS[name]).make_context(name, list(words))
        given = {key: value for key, value in context.params.items() if value}
        found.append((name, given))
    return found


@pytest.mark.parametrize(
    ("line", "given"),
    [
        ("job run a.py", {"program": "a.py"}),
        ("job.run a.py --on workers", {"program": "a.py", "on": "workers"}),
        ("job run --on workers --json a.py", {"program": "a.py", "on": "workers", "json_": True}),
        ("job run --inventory=x.yaml a.py", {"program": "a.py", "inventory": "x.yaml"}),
        ("job run --set a=1 --set b=2 a.py", {"program": "a.py", "set_": ("a=1", "b=2")}),
        ("job run --program a.py", {"program": "a.py"}),
        ("job run --on workers", {"on": "workers"}),
        ("job run a.py -- --on b.py", {"program": "a.py", "arguments": ("--on", "b.py")}),
        ("job run --program a.py -- b.py", {"program": "a.py", "arguments": ("b.py",)}),
        ("job run export", {"program": "export"}),
        ("deploy render kubernetes --out x", {"kind": "kubernetes", "out": "x"}),
        ("deploy.render --out x kubernetes", {"kind": "kubernetes", "out": "x"}),
        ("deploy render --kind kubernetes --out=x", {"kind": "kubernetes", "out": "x"}),
    ],
)
def test_the_word_of_a_command_may_stand_anywhere(line: str, given: dict[str, object]) -> None:
    ((name, found),) = read(line)
    assert name in ("job run", "deploy render")
    assert found == given


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (
            "deploy stop deploy start --jobs",
            [("deploy stop", {}), ("deploy start", {"jobs": True})],
        ),
        ("app new init init", [("app new", {"name": "init"}), ("init", {})]),
        (
            "deploy status --watch deploy stop",
            [("deploy status", {"watch": 2.0}), ("deploy stop", {})],
        ),
        ("deploy status --watch=5", [("deploy status", {"watch": 5.0})]),
        ("deploy status --watch 0.5 --json", [("deploy status", {"watch": 0.5, "json_": True})]),
        (
            "deploy logs --role ps --role worker --lines 1e3",
            [("deploy logs", {"role": ("ps", "worker"), "lines": 1000})],
        ),
        (
            "deploy stop --inventory deploy.start",
            [("deploy stop", {"inventory": "deploy.start"})],
        ),
    ],
)
def test_each_command_of_a_line_keeps_its_own_words(
    line: str, found: list[tuple[str, dict[str, object]]]
) -> None:
    assert read(line) == found


@pytest.mark.parametrize("line", ["", "--jobs", "deploy", "dance", "deploy start --limit"])
def test_what_is_no_command_is_refused(line: str) -> None:
    with pytest.raises(UsageError):
        list(calls(line.split()))


COMPLETED = [
    ("fab dep", "deploy"),
    ("fab deploy sta", "start"),
    ("fab deploy start --dry", "--dry-run"),
    ("fab job train --mode syn", "sync"),
    ("fab data fetch ha", "hapt"),
    ("fab deploy stop deploy sta", "start"),
    ("fab deploy stop --limit ps deploy start --jo", "--jobs"),
]


@pytest.fixture
def programs(tmp_path: Path) -> dict[str, str]:
    """An environment with a quick `fab`, which is the tree without Fabric before it."""
    quick = tmp_path / "fab"
    quick.write_text(
        program(
            "from deploy.commands.completing import answers_shell\n"
            "answers_shell('fab') or exit('no shell asks')\n"
        )
    )
    quick.chmod(0o755)
    paths = f"{tmp_path}:{os.environ['PATH']}"
    return {**os.environ, "PATH": paths, "PYTHONPATH": str(ROOT)}


ASKING = {
    "bash": """COMP_WORDS=({line}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_fab_completion fab; printf '%s\\n' "${{COMPREPLY[@]}}"
""",
    "fish": "complete -C '{line}'\n",
    "zsh": """words=({line}); CURRENT=${{#words}}; _fab_completion
""",
}
BEFORE = {
    "zsh": """[[ -n $ZSH_ROOT ]] && module_path=($ZSH_ROOT/usr/lib/*/zsh/*)
compdef() {}; compadd() { print -l -- $completions }
_describe() { print -l -- ${completions_with_descriptions%%:*} }
"""
}
"""The widgets of zsh's completion, which exist at a prompt alone."""


@pytest.mark.parametrize(("line", "word"), COMPLETED)
@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_completes(
    shell: str, line: str, word: str, programs: dict[str, str], tmp_path: Path
) -> None:
    asking = ASKING[shell].format(line=line)
    path = tmp_path / "asking"
    path.write_text(f"{BEFORE.get(shell, '')}\n{script(shell, 'fab')}\n{asking}")
    done = subprocess.run(
        [needs.tool(shell), path], env=programs, cwd=tmp_path, capture_output=True, text=True
    )
    assert word in [row.partition("\t")[0] for row in done.stdout.splitlines()], done.stderr


@pytest.mark.parametrize(
    ("line", "incomplete", "found"),
    [
        ("deploy start -- x", "--dry", {"--dry-run"}),
        ("app new walking --name other", "--temp", {"--template"}),
        ("completion", "", set(SHELLS)),
        ("completion bash", "", set()),
        ("deploy stop --limit", "", set()),
        ("deploy stop deploy", "sta", {"start", "status"}),
        ("deploy stop deploy start", "--jo", {"--jobs"}),
    ],
)
def test_a_line_that_is_wrong_or_unfinished_is_completed(
    line: str, incomplete: str, found: set[str]
) -> None:
    asked = ShellComplete(Tree(), {}, "fab", variable("fab"))
    items = asked.get_completions(line.split(), incomplete)
    assert {item.value for item in items} == found


@pytest.mark.parametrize(("shell", "program"), [("bash", "fab"), ("fish", "pscluster")])
def test_the_programs_themselves_answer(shell: str, program: str, tmp_path: Path) -> None:
    commands = {"fab": PROGRAM, "pscluster": (sys.executable, "-m", "pscluster")}
    asked = {
        f"_{program.upper()}_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": f"{program} deploy sta",
        "COMP_CWORD": {"fish": "sta", "bash": "2"}[shell],
        "PYTHONPATH": str(ROOT),
    }
    environment = {**os.environ, **asked}
    done = subprocess.run(
        commands[program], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    for word in ("start", "status"):
        assert re.search(rf"(?m)^(\w+,)?{word}\b", done.stdout)


def test_a_page_without_the_lines_that_begin_and_end_the_flags_is_refused() -> None:
    with pytest.raises(ValueError, match=r"docs/commands.md: expected the lines"):
        render("# Commands\n")
