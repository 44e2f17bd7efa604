"""Exports timed on a node: the program of `fab job inference`."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.exported.timed import on_node
from deploy.common.project import ROOT
from tests.deploy.playing import eventually
from tests.recognise.exports import export


@pytest.fixture
def working(tmp_path: Path) -> Path:
    """The working folder of the program, beside its exports."""
    (tmp_path / "program/exports").mkdir(parents=True)
    for name in ("litert-later", "onnx"):
        export(tmp_path / "program/exports" / name)
    (tmp_path / "working").mkdir()
    return tmp_path / "working"


def start(working: Path) -> "subprocess.Popen[str]":
    program = working.parent / "program"
    words = [sys.executable, "-m", "core.exported.timed.on_node", str(program), "2", "3", "1"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(words, cwd=working, env=environment, stdout=subprocess.PIPE, text=True)


def test_it_leaves_what_it_measured_and_where(working: Path) -> None:
    with start(working) as program:
        said, _ = program.communicate(timeout=100)
    assert program.returncode == 0
    found = json.loads((working / "inference.json").read_text())
    names = [row["name"] for row in found["rows"]]
    assert names == ["onnx float32 (onnx)", "onnx float32 (litert-later)"]
    assert all(row["windows"] == 6 and row["median_ms"] > 0 for row in found["rows"])
    assert found["machine"]["cores"] == os.cpu_count()
    assert found["machine"]["memory_mb"] > 100
    assert said.count(" ms a window, p99 ") == 2


@pytest.fixture
def taken() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as held:
        held.bind(f"\0pscluster-inference-{os.getuid()}")
        yield held


def test_a_second_worker_of_a_machine_waits_for_the_first(
    working: Path, taken: socket.socket
) -> None:
    with start(working) as waiting:
        tries = Path(f"/proc/{waiting.pid}/wchan")
        eventually(
            lambda: "nanosleep" in tries.read_text() or waiting.poll() is not None, "it waits"
        )
        assert waiting.poll() is None
        assert not (working / "inference.json").exists()
        taken.close()
        waiting.communicate(timeout=100)
    assert waiting.returncode == 0
    assert (working / "inference.json").exists()


def test_a_machine_without_a_device_tree_is_its_processor(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(on_node, "_PI", tmp_path / "model")
    assert on_node.machine()["model"]
    (tmp_path / "model").write_bytes(b"Raspberry Pi 5 Model B Rev 1.0\0")
    assert on_node.machine()["model"] == "Raspberry Pi 5 Model B Rev 1.0"
