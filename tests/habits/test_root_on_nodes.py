"""Commands for nodes are argument lists, and one place does root's work on files."""

import ast
import re

import pytest

from deploy.common.project import ROOT
from tests.deploy.tables import Tables
from tests.habits.shell_values import Unquoted, commands_as_text, names_within_quotes, unquoted
from tests.ran import ran

rows = Tables(__file__)

pytestmark = pytest.mark.sources

SOURCES = {
    path.relative_to(ROOT).as_posix(): path.read_text()
    for path in sorted((ROOT / "deploy").rglob("*.*"))
    if path.suffix in (".py", ".sh")
}
MODULES = {name: text for name, text in SOURCES.items() if name.endswith(".py")}
SCRIPTS = {name: text for name, text in SOURCES.items() if name.endswith(".sh")}

BY_PATH = re.compile(
    r"\b(rm -rf?|chown|install -d|mkdir -p|ln -s|cp"
    r" -[a-z]*[rp])\b|Standard(Output|Error)=(append|file)"
)
WITHIN_ROOT_S_OWN = {
    "deploy/converge/debian.py": "/var/lib/pscluster-deploy, which only root reads",
    "deploy/converge/accounts_undo.sh": "/var/lib/pscluster-deploy, which only root reads",
    "deploy/converge/copy.sh": "/opt/pscluster/prepared, which only root writes",
    "deploy/converge/reset.sh": (
        "folders below /etc, /opt, /var/lib and the export, also where Python is broken"
    ),
    "deploy/release/finish.sh": (
        "the shared folder on its server, root's; elsewhere it runs as the account"
    ),
    "deploy/release/install.sh": "/opt/pscluster/environments, which only root writes",
    "deploy/release/make_current.sh": "/opt/pscluster, which only root writes",
    "deploy/release/missing.sh": "as finish.sh",
    "deploy/release/prune.sh": "as finish.sh",
    "deploy/release/prune_extras.sh": "/opt/pscluster/extras, which only root writes",
    "deploy/release/remove.sh": "/opt/pscluster, which only root writes",
    "deploy/release/unpack.sh": "/opt/pscluster/releases, which only root writes",
    "deploy/rooted/files.py": "a message",
}
"""The scripts, and modules with some, that name files by path, and why only root can change these
files."""


def test_every_value_in_a_shell_command_is_quoted_by_the_one_function() -> None:
    assert [found for name, text in MODULES.items() for found in unquoted(name, text)] == []


def test_a_value_in_a_script_s_file_is_within_quotes_only_where_it_is_a_constant() -> None:
    """`filled` quotes each value: between other quotes it would be none any more."""
    within = {
        (script, name) for script, text in SCRIPTS.items() for name in names_within_quotes(text)
    }
    assert {one for one in within if not one[1].rpartition(".")[2].isupper()} == set()


def test_commands_for_nodes_are_lists_of_words() -> None:
    assert [place for name, text in MODULES.items() for place in commands_as_text(name, text)] == []


def test_one_module_knows_how_a_shell_quotes() -> None:
    knows = [
        name
        for name, text in MODULES.items()
        if re.search(r"^\s*(import|from) shlex", text, re.MULTILINE)
    ]
    assert knows == ["deploy/common/command_line.py"]


def test_root_names_no_file_by_its_path_but_within_its_own_folders() -> None:
    texts = {
        name: [node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)]
        for name, text in MODULES.items()
    }
    texts |= {name: [text] for name, text in SCRIPTS.items()}
    found = {
        name
        for name, strings in texts.items()
        if any(isinstance(text, str) and BY_PATH.search(text) for text in strings)
    }
    assert found - WITHIN_ROOT_S_OWN.keys() == set(), "use deploy.rooted.commands"
    assert WITHIN_ROOT_S_OWN.keys() - found == set()


def test_what_runs_on_a_node_is_the_standard_library_alone() -> None:
    modules = ("deploy.rooted.files", "deploy.rooted.jobs")
    program = (
        f"import sys; sys.path.append({str(ROOT)!r}); before = set(sys.modules);"
        f" import {', '.join(modules)}; print(*set(sys.modules) - before)"
    )
    loaded = ran("/usr/bin/python3", "-I", "-S", "-c", program).stdout.split()
    ours = {name for name in loaded if name.partition(".")[0] in ("deploy", "cluster")}
    assert ours == {"deploy", "deploy.rooted", *modules}


@rows("line", "value")
def test_what_the_review_found_would_be_seen(line: str, value: str) -> None:
    text = f"def one(unit, seen, log, step, jobs, y, run):\n    {line}\n"
    assert value in {found.value for found in unquoted("x.py", text)}


@rows("line")
def test_a_value_within_quotes_would_be_seen(line: str) -> None:
    assert list(names_within_quotes(f"echo it\\'s \"quoted\"  # isn't it\n{line}\n")) == ["path"]


def test_a_value_beside_quotes_is_none_of_them() -> None:
    assert list(
        names_within_quotes(
            "rm {{ path }}\"/x $(ls {{ path }})\" '{{ HERE }}' # isn't {{ path }}\n"
        )
    ) == ["HERE"]


@rows("line")
def test_what_is_quoted_constant_or_a_number_is_none(line: str) -> None:
    assert list[Unquoted](unquoted("x.py", f"def one(path, mode):\n    {line}\n")) == []
