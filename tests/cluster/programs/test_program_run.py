"""`fab job run` as a person types it, with programs without TensorFlow."""

import json
import os
import re
import signal
import subprocess
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from core.inventory.templates import local_inventory
from deploy.common.project import ROOT
from tests.deploy.playing import eventually, gone
from tests.deploy.typed import PROGRAM, Fab
from tests.hang import HANG_SECONDS
from tests.tables import table


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "inventory.yaml").write_text(local_inventory(2, 1) + "page: {listen: 'off'}\n")
    return tmp_path


def typed(here: Path, *words: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PSCLUSTER_INVENTORY": str(here / "inventory.yaml")}
    return subprocess.Popen(
        [*PROGRAM, *words],
        cwd=here,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@dataclass
class Ended:
    """A program that ended: what `fab` said, and its result."""

    code: int
    out: str
    err: str
    folder: Path

    @property
    def last(self) -> str:
        return self.err.splitlines()[-1]

    def has(self, **expected: Any) -> None:
        """The result has these entries."""
        result = json.loads((self.folder / "result.json").read_text())
        assert {key: result[key] for key in expected} == expected


def ended(here: Path, process: subprocess.Popen[str]) -> Ended:
    out, err = process.communicate(timeout=HANG_SECONDS)
    (folder,) = here.glob("runs/*-run")
    return Ended(process.returncode, out, err, folder)


def run(here: Path, source: str, *arguments: str, flags: Sequence[str] = ()) -> Ended:
    """This program, once on each worker."""
    (here / "program.py").write_text(textwrap.dedent(source))
    words = ("job", "run", "--on", "workers", *flags, "program.py", *arguments)
    return ended(here, typed(here, *words))


def test_arguments_arrive_as_typed_and_files_stay(here: Path) -> None:
    source = """
        import argparse, os, pathlib
        parser = argparse.ArgumentParser()
        parser.add_argument("--inventory"), parser.add_argument("rest", nargs="*")
        given = parser.parse_args()
        pathlib.Path("left.txt").write_text(os.environ["RANK"])
        assert os.getcwd() == os.environ["PSCLUSTER_RUN"]
        print(given.inventory, given.rest)
        print("no end", end="")
    """
    arguments = ["--inventory", "x y", "$HOME", "it's"]
    found = run(here, source, "--", *arguments)
    assert found.code == 0, found.err
    assert found.out.splitlines()[-1].startswith("result: runs/")
    found.has(schema=1, job="run", status="done", exit_code=0, arguments=arguments)
    for rank in ("0", "1"):
        assert f"""worker:{rank}: x y ['$HOME', "it's"]\n""" in found.err
        assert f"worker:{rank}: no end\n" in found.err
        assert (found.folder / f"files/worker-{rank}/left.txt").read_text() == rank
        assert (found.folder / f"worker-{rank}.log").read_bytes().endswith(b"no end")


def test_the_first_that_fails_is_named_with_its_node_and_code(here: Path) -> None:
    found = run(here, (ROOT / "examples/programs/fails_on_one_worker.py").read_text())
    assert found.code == 1
    assert found.last.startswith(
        "program.py ended with exit code 7 on worker:1 (node localhost); its output is in runs/"
    )
    found.has(status="failed", exit_code=7, failed_first="worker:1", reason=found.last)
    assert "Traceback" not in found.err


@pytest.mark.parametrize(
    ("source", "own", "hint"),
    table("cluster/programs/rows", "tracebacks"),
)
def test_a_traceback_is_the_program_s_own(here: Path, source: str, own: str, hint: str) -> None:
    found = run(here, source)
    assert found.code == 1
    assert own in found.err
    assert hint in found.last
    frames = re.findall(r'File "([^"]+)"', found.err)
    assert {Path(frame).name for frame in frames} == {"program.py"}


SLEEPS = """
import os, subprocess, sys, time
sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
child = subprocess.Popen(sleep, start_new_session=True)
open("pids", "w").write(f"{os.getpid()} {child.pid}")
os.rename("pids", "ready")
time.sleep(600)
"""


def test_an_interrupt_ends_everything_and_keeps_the_result(here: Path) -> None:
    (here / "program.py").write_text(SLEEPS)
    process = typed(here, "job", "run", "program.py", "--on", "workers")
    try:
        eventually(lambda: len(list(here.glob("runs/*/files/*/ready"))) == 2, "both programs")
        ready = here.glob("runs/*/files/*/ready")
        pids = [int(pid) for path in ready for pid in path.read_text().split()]
        process.send_signal(signal.SIGINT)
        found = ended(here, process)
    finally:
        process.kill()
    assert found.code == 130, found.err
    found.has(status="cancelled")
    eventually(lambda: all(gone(pid) for pid in pids), "the end of all processes")


def test_a_program_that_is_killed_starts_again_in_its_folder(here: Path) -> None:
    source = """
        import os, pathlib, signal
        if os.environ["RANK"] == "1" and not pathlib.Path("before").exists():
            pathlib.Path("before").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        print("ended")
    """
    found = run(here, source)
    assert found.code == 0, found.err
    assert "restart 1 of 5" in found.err
    found.has(status="done", attempts=2)


def test_with_no_restarts_a_killed_program_has_failed(here: Path) -> None:
    source = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    found = run(here, source, flags=("--restarts", "0"))
    assert found.code == 1
    assert "ended with signal 9 (SIGKILL)" in found.last
    found.has(signal="SIGKILL", exit_code=137)


@pytest.mark.parametrize(
    ("line", "words"),
    table("cluster/programs/rows", "bad usage"),
)
def test_bad_usage_is_one_line(here: Path, fab: Fab, line: str, words: str) -> None:
    ended = fab(line)
    assert (ended.code, len(ended.stderr.splitlines())) == (2, 1), ended.stderr
    assert words in ended.stderr
    assert not (here / "runs").exists()
