"""What a role wrote into its log comes out of `fab deploy logs` on a terminal, and nothing of it is
obeyed."""

import json
from pathlib import Path

import pytest

from core.inventory import load
from core.inventory.templates import local_inventory
from deploy.common.project import ROOT
from deploy.common.state_folder import StateFolder
from tests.deploy.pseudo_terminal import on_a_terminal
from tests.deploy.typed import PROGRAM

LOGS = [*PROGRAM, "deploy", "logs"]
HOSTILE = "\x1b]52;c;cm0gLXJmIH4=\x07\x1b[2J\x1b[Hfab: all is well\r[/b][red]x\x9b31m\u202e"
SHOWN = r"\x1b]52;c;cm0gLXJmIH4=\x07\x1b[2J\x1b[Hfab: all is well\r[/b][red]x\x9b31m\u202e"


@pytest.fixture
def state(tmp_path: Path) -> StateFolder:
    (tmp_path / "inventory.yaml").write_text(local_inventory(workers=1))
    inventory = load(tmp_path / "inventory.yaml")
    made = StateFolder.of(inventory.path, inventory.cluster)
    made.create()
    return made


def controls(written: bytes) -> set[str]:
    """What a terminal would obey, but for the line ends that its own driver makes."""
    text = written.decode("utf-8", errors="replace").replace("\r\n", "\n")
    return {c for c in text if not c.isprintable() and c != "\n"}


def shown_lines(folder: Path, *flags: str) -> list[str]:
    """What `fab deploy logs` shows on a terminal, which has nothing to obey in it."""
    with on_a_terminal([*LOGS, *flags], folder, columns=300) as terminal:
        assert terminal.end() == 0
    assert not controls(terminal.written), terminal.text
    return terminal.text.splitlines()


def test_a_hostile_line_is_shown_and_not_obeyed(state: StateFolder, tmp_path: Path) -> None:
    state.log("worker:0").write_text(f"{HOSTILE}\n", encoding="utf-8")
    assert SHOWN in shown_lines(tmp_path)[-1]
    assert json.loads(shown_lines(tmp_path, "--json")[-1])["message"] == HOSTILE


def test_followed_too(state: StateFolder, tmp_path: Path) -> None:
    log = state.log("worker:0")
    log.write_text("first\n")
    with on_a_terminal([*LOGS, "--follow"], tmp_path, columns=300) as terminal:
        terminal.until("first")
        with log.open("a", encoding="utf-8") as appended:
            appended.write(f"{HOSTILE}\nthe end\n")
        terminal.until("the end")
        assert SHOWN in terminal.text
        assert not controls(terminal.written), terminal.text
        terminal.interrupt()
        assert terminal.end() == 130


def test_a_json_line_with_controls_stays_json(state: StateFolder, tmp_path: Path) -> None:
    fields = {"time": "2026-11-22T00:00:00.987Z", "message": "x\x9b\x7f\u202e", "more": "\u2028"}
    written = json.dumps(fields, ensure_ascii=False)
    state.log("worker:0").write_text(f"{written}\n", encoding="utf-8")
    assert json.loads(shown_lines(tmp_path, "--json")[-1]) == fields


def test_the_traceback_of_a_bug_is_harmless_too(state: StateFolder, tmp_path: Path) -> None:
    fabfile = tmp_path / "fabfile.py"
    fabfile.write_text(
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from deploy.common.interrupts import quiet_until_a_command_begins\n"
        "quiet_until_a_command_begins()\n"
        f"raise RuntimeError({HOSTILE!r})\n"
    )
    with on_a_terminal([PROGRAM[0], "--list"], tmp_path, columns=300) as terminal:
        assert terminal.end() == 1
    assert not controls(terminal.written), terminal.text
    assert f"RuntimeError: {SHOWN}" in terminal.text
