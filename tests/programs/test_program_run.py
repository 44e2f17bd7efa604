"""`fab job run` as a person types it, with programs that need no TensorFlow, once for each of two local workers."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest

from cluster.inventory.templates import local_inventory
from deploy.common.project import ROOT
from tests.deploy.playing import eventually, gone
from tests.deploy.typed import Fab

FAB = Path(sys.executable).with_name("fab")


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "inventory.yaml").write_text(local_inventory(2, 1) + "page: {listen: 'off'}\n")
    return tmp_path


def typed(here: Path, *words: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PSCLUSTER_INVENTORY": str(here / "inventory.yaml")}
    return subprocess.Popen(
        [str(FAB), "-r", str(ROOT), *words], cwd=here, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip


def run(here: Path, source: str, *words: str, on: Sequence[str] = ("--on", "workers")) -> tuple[int, str, str]:
    (here / "program.py").write_text(textwrap.dedent(source))
    process = typed(here, "job", "run", *on, "program.py", *words)
    out, err = process.communicate(timeout=100)
    return process.returncode, out, err


def result(here: Path) -> dict[str, object]:
    (path,) = here.glob("runs/*-run/result.json")
    found: dict[str, object] = json.loads(path.read_text())
    return found


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
    code, out, err = run(here, source, "--", "--inventory", "x y", "$HOME", "it's")
    assert code == 0, err
    for worker in ("worker:0", "worker:1"):
        assert f"""{worker}: x y ['$HOME', "it's"]\n""" in err
        assert f"{worker}: no end\n" in err
    assert out.splitlines()[-1].startswith("result: runs/")
    found = result(here)
    assert (found["schema"], found["job"], found["status"], found["exit_code"]) == (1, "run", "done", 0)
    assert found["arguments"] == ["--inventory", "x y", "$HOME", "it's"]
    (run_folder,) = here.glob("runs/*-run")
    for rank in ("0", "1"):
        assert (run_folder / "files" / f"worker-{rank}" / "left.txt").read_text() == rank
        assert (run_folder / f"worker-{rank}.log").read_bytes().endswith(b"no end")


def test_the_first_that_fails_is_named_with_its_node_and_code(here: Path) -> None:
    source = (ROOT / "examples/programs/fails_on_one_worker.py").read_text()
    code, _, err = run(here, source)
    assert code == 1
    last = err.splitlines()[-1]
    assert last.startswith("program.py ended with exit code 7 on worker:1 (node localhost); its output is in runs/")
    found = result(here)
    assert (found["status"], found["exit_code"], found["failed_first"]) == ("failed", 7, "worker:1")
    assert found["reason"] == last
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("source", "own", "hint"),
    [
        ("def broken(:\n", "SyntaxError", ""),
        ("import tf_keras_is_not_here\n", "ModuleNotFoundError", "tf_keras_is_not_here is not installed"),
    ],
)
def test_a_traceback_is_the_program_s_own(here: Path, source: str, own: str, hint: str) -> None:
    code, _, err = run(here, source)
    assert code == 1
    assert own in err
    assert hint in err.splitlines()[-1]
    ours = [line for line in err.splitlines() if "cluster/" in line and not line.startswith("worker:")]
    assert not ours


def test_an_interrupt_ends_everything_and_keeps_the_result(here: Path) -> None:
    (here / "program.py").write_text(
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
        "open('pids', 'w').write(f'{os.getpid()} {child.pid}')\n"
        "os.rename('pids', 'ready')\n"
        "time.sleep(600)\n"
    )
    process = typed(here, "job", "run", "program.py", "--on", "workers")
    try:
        eventually(lambda: len(list(here.glob("runs/*/files/*/ready"))) == 2, "both programs")
        pids = [int(word) for path in here.glob("runs/*/files/*/ready") for word in path.read_text().split()]
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=100)
    finally:
        process.kill()
    assert process.returncode == 130, err
    assert result(here)["status"] == "cancelled"
    eventually(lambda: all(gone(pid) for pid in pids), "the end of all processes")


def test_a_program_that_is_killed_starts_again_in_its_folder(here: Path) -> None:
    source = """
        import os, pathlib, signal
        if os.environ["RANK"] == "1" and not pathlib.Path("before").exists():
            pathlib.Path("before").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        print("ended")
    """
    code, _, err = run(here, source)
    assert code == 0, err
    assert "restart 1 of 5" in err
    found = result(here)
    assert (found["status"], found["attempts"]) == ("done", 2)


def test_with_no_restarts_a_killed_program_has_failed(here: Path) -> None:
    source = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    code, _, err = run(here, source, on=("--on", "workers", "--restarts", "0"))
    assert code == 1
    assert "ended with signal 9 (SIGKILL)" in err.splitlines()[-1]
    assert (result(here)["signal"], result(here)["exit_code"]) == ("SIGKILL", 137)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("job run", "job run: expected a program"),
        ("job run gone.py", "gone.py: expected a Python program, found no such file"),
        ("job run --on moon inventory.yaml", "--on: expected chief or workers, got 'moon'"),
        ("job run --restarts many inventory.yaml", "--restarts: expected a whole number"),
        ("deploy status -- x", "only `fab job run` takes words behind it"),
        ("job run --on workers --requirements gone.txt inventory.yaml", "--requirements gone.txt: cannot be read"),
    ],
)
def test_bad_usage_is_one_line(here: Path, fab: Fab, line: str, words: str) -> None:
    ended = fab(line)
    assert (ended.code, len(ended.stderr.splitlines())) == (2, 1), ended.stderr
    assert words in ended.stderr
    assert not (here / "runs").exists()


def test_the_chief_needs_roles_that_run(here: Path, fab: Fab) -> None:
    (here / "program.py").touch()
    ended = fab("job run program.py")
    assert ended.code == 1
    assert "a job needs every parameter server" in ended.stderr
