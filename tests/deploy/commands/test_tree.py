"""How a line is read: words by their place, and completion in a shell."""

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import ShellComplete

from deploy.commands.action import Action
from deploy.commands.tree import Tree, run
from deploy.commands.ungrouped import SHELLS, completion_script, completion_variable
from deploy.common.project import ROOT
from tests.deploy.tables import Tables
from tests.deploy.typed import PROGRAM
from tests.habits import needs
from tests.ran import program, ran
from tools.command_reference import render

rows = Tables(__file__)


@rows("line", "given")
def test_a_command_takes_its_words(
    monkeypatch: pytest.MonkeyPatch, line: str, given: dict[str, object]
) -> None:
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(Action, "run", lambda _, values: calls.append(values))
    assert run(line.split(), "fab") == 0
    (values,) = calls
    lists = {key: [*value] for key, value in values.items() if isinstance(value, tuple)}
    assert {key: value for key, value in (values | lists).items() if value is not False} == given


@rows("line")
def test_what_is_no_command_is_refused(line: str) -> None:
    assert run(line.split(), "fab") == 2


COMPLETED = [
    ("fab dep", "deploy"),
    ("fab deploy sta", "start"),
    ("fab deploy start --dry", "--dry-run"),
    ("fab job train --mode syn", "sync"),
    ("fab data fetch ha", "hapt"),
    ("fab deploy start --limit ps --jo", "--jobs"),
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
    path.write_text(f"{BEFORE.get(shell, '')}\n{completion_script(shell, 'fab')}\n{asking}")
    done = ran(needs.tool(shell), path, folder=tmp_path, environment=programs)
    assert word in [row.partition("\t")[0] for row in done.stdout.splitlines()], done.stderr


@rows("line", "incomplete", "found")
def test_a_line_that_is_wrong_or_unfinished_is_completed(
    line: str, incomplete: str, found: list[str]
) -> None:
    asked = ShellComplete(Tree(), {}, "fab", completion_variable("fab"))
    items = asked.get_completions(line.split(), incomplete)
    assert sorted(item.value for item in items) == found


@rows("shell", "program")
def test_the_programs_themselves_answer(shell: str, program: str, tmp_path: Path) -> None:
    commands = {"fab": PROGRAM, "pscluster": (sys.executable, "-m", "pscluster")}
    asked = {
        f"_{program.upper()}_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": f"{program} deploy sta",
        "COMP_CWORD": {"fish": "sta", "bash": "2"}[shell],
        "PYTHONPATH": str(ROOT),
    }
    environment = {**os.environ, **asked}
    done = ran(*commands[program], folder=tmp_path, environment=environment)
    assert done.stderr == ""
    for word in ("start", "status"):
        assert re.search(rf"(?m)^(\w+,)?{word}\b", done.stdout)


def test_a_page_without_the_lines_that_begin_and_end_the_flags_is_refused() -> None:
    with pytest.raises(ValueError, match=r"docs/commands.md: expected the lines"):
        render("# Commands\n")
