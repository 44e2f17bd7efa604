"""What moves on a terminal, and what does not where nothing may."""

import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from core.inventory.templates import local_inventory
from deploy.common.project import ROOT
from deploy.terminal.console import progress_line
from tests.deploy.pseudo_terminal import COLOUR, PATIENCE_SECONDS, Terminal, on_a_terminal
from tests.deploy.tables import Tables
from tests.deploy.typed import PROGRAM

rows = Tables(__file__)

WATCH = [*PROGRAM, "deploy", "status", "--watch", "0.2"]
HIDE_CURSOR = "\x1b[?25l"
SHOW_CURSOR = "\x1b[?25h"

JOB = """
import sys, time
sys.path.insert(0, {root!r})
from contextlib import closing
from cluster.jobs.progress import Display
with Display(quiet="--quiet" in sys.argv) as display:
    display.say("data: synthetic")
    with display.busy("placing the parameters, tracing the network"):
        time.sleep(0.3)
    with closing(display.bar("train", 12)) as bar:
        for update in range(12):
            bar.set(update + 1, "epoch 1/12  loss 1.23  1,234 windows/s  val. 0.912")
            time.sleep(0.05)
    display.say("test: accuracy 0.93")
"""


def job(columns: int, *flags: str, environment: Mapping[str, str] | None = None) -> Terminal:
    words = [sys.executable, "-c", JOB.format(root=str(ROOT)), *flags]
    with on_a_terminal(words, ROOT, columns, environment=environment) as terminal:
        assert terminal.end() == 0, terminal.text
    return terminal


@rows("columns")
def test_a_jobs_bars_fit_the_terminal_and_leave_it_as_it_was(columns: int) -> None:
    terminal = job(columns)
    assert any(row.startswith("placing the") for row in terminal.rows)
    assert all(len(row) <= columns for row in terminal.rows)
    assert HIDE_CURSOR in terminal.text
    assert terminal.text.rindex(SHOW_CURSOR) > terminal.text.rindex(HIDE_CURSOR)
    assert COLOUR.search(terminal.text)
    assert any(row.startswith("train") and "/12 epoch 1/12" in row for row in terminal.rows)


def test_without_colours() -> None:
    terminal = job(80, environment={"NO_COLOR": "1"})
    assert not COLOUR.search(terminal.text)
    assert any(row.startswith("train") for row in terminal.rows)


@rows("flags", "term")
def test_nothing_moves_where_it_should_not(flags: tuple[str, ...], term: str) -> None:
    terminal = job(60, *flags, environment={"TERM": term})
    assert "\x1b" not in terminal.text
    assert [row for row in terminal.rows if row] == (
        [] if flags else ["data: synthetic", "test: accuracy 0.93"]
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "inventory.yaml").write_text(local_inventory(2, 1))
    return tmp_path


@pytest.mark.parametrize("columns", [60, 120])
def test_a_watched_status_is_redrawn_in_place_until_ctrl_c(folder: Path, columns: int) -> None:
    with on_a_terminal([*PROGRAM, "deploy", "status"], folder, columns) as once:
        assert once.end() == 3
    with on_a_terminal(WATCH, folder, columns) as terminal:
        terminal.until(r"every 0\.2 s, Ctrl-C ends it", times=3)
        terminal.interrupt()
        assert terminal.end() == 0
    assert "\x1b[1A" in terminal.text  # up, over what was drawn before
    rows_shown = [*once.rows, *terminal.rows]
    assert all(len(row) <= columns for row in rows_shown if "from ./inventory.yaml" not in row)
    assert sum(row.startswith("worker") for row in terminal.rows) >= 6
    assert "…" not in terminal.text
    assert terminal.text.rindex(SHOW_CURSOR) > terminal.text.rindex(HIDE_CURSOR)


def test_a_watched_status_is_blocks_where_nothing_can_be_redrawn(folder: Path) -> None:
    with subprocess.Popen(WATCH, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines: list[str] = []
        while lines.count("no job runs\n") < 2:
            lines.append(process.stdout.readline())
            assert lines[-1], lines
        process.send_signal(signal.SIGINT)
        lines += process.stdout.readlines()
        assert process.wait(PATIENCE_SECONDS) == 0
    assert not any("\x1b" in line for line in lines)
    assert "\n" in lines


@rows("exported", "line")
def test_how_far_a_job_is(exported: str, line: str) -> None:
    assert progress_line(exported).endswith(line)
    assert bool(progress_line(exported)) == bool(line)
