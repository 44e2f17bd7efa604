"""What a role says and how it ends where TensorFlow is missing, broken or built for another processor."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from cluster.errors import ExitCode
from cluster.server.role import processor
from tests.server.fake_wheels import crashing_library, fake_wheel
from tests.server.processes import HANG_SECONDS, PROJECT, free_ports, launch


def flags() -> list[str]:
    port, metrics_port = free_ports(2)
    return ["--task", "0", "--host", "127.0.0.1", "--port", str(port), "--metrics-port", str(metrics_port)]


def start_with(wheel: Path) -> tuple[int, list[str]]:
    process = launch("ps_node", flags(), {"PYTHONPATH": str(wheel)})
    output = process.communicate(timeout=HANG_SECONDS)[0]
    return process.returncode, output.splitlines()


def test_an_illegal_instruction_is_one_line_with_its_own_exit_code(tmp_path: Path) -> None:
    code, lines = start_with(fake_wheel(tmp_path, crashing_library(), b""))
    assert code == ExitCode.ILLEGAL_INSTRUCTION
    assert len(lines) == 1
    assert f": illegal instruction: this processor ({processor()}) lacks one" in lines[0]
    assert lines[0].startswith("ps:0 127.0.0.1:")


def test_a_library_that_is_not_in_the_wheel_is_named(tmp_path: Path) -> None:
    code, lines = start_with(fake_wheel(tmp_path, crashing_library(), None))
    assert code == ExitCode.WHEEL_MISSING
    assert len(lines) == 1
    assert "has no libtensorflow_cc.so.2" in lines[0]


def test_a_library_that_cannot_be_loaded_is_named_with_the_reason(tmp_path: Path) -> None:
    code, lines = start_with(fake_wheel(tmp_path, b"truncated", b""))
    assert code == ExitCode.WHEEL_MISSING
    assert len(lines) == 1
    assert "libtensorflow_framework.so.2 cannot be loaded" in lines[0]


@pytest.mark.parametrize("server", ["lean", "stock"])
def test_a_python_without_tensorflow_is_one_line_with_the_remedy(tmp_path: Path, server: str) -> None:
    installed = Path(psutil.__file__).parents[1]
    for package in ("psutil", "prometheus_client"):
        (tmp_path / package).symlink_to(installed / package)
    start = f"import sys; sys.path[:0] = [{str(PROJECT)!r}, {str(tmp_path)!r}]\n"
    start += "from cluster.server.role import main\nsys.exit(main('ps', sys.argv[1:]))"
    ended = subprocess.run(
        [sys.executable, "-I", "-S", "-c", start, *flags(), "--server", server],
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
    )
    assert ended.returncode == ExitCode.WHEEL_MISSING, ended.stderr
    assert ended.stderr.splitlines()[-1].endswith("run `make .venv`")
    assert ": TensorFlow is not installed for" in ended.stderr
    assert ended.stderr.startswith("ps:0 127.0.0.1:")
    assert "Traceback" not in ended.stderr


ILLEGAL_IN_A_THREAD_PYTHON_DOES_NOT_KNOW = """
import ctypes, mmap, socket
from cluster.server.role import report_crashes
from tests.server.fake_wheels import UNDEFINED_INSTRUCTION
import platform
report_crashes(lambda words: f"worker:1: {words}")
page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(UNDEFINED_INSTRUCTION[platform.machine()])
code = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(page)))
ours, theirs = socket.socketpair()
ctypes.CDLL(None).pthread_create(ctypes.byref(ctypes.c_ulong()), None, code, None)
ours.recv(1)
"""


def test_an_illegal_instruction_in_a_thread_of_tensorflow_is_told_too() -> None:
    """As a kernel would meet it that is first used in the middle of a job, while Python waits for a signal."""
    ended = python(ILLEGAL_IN_A_THREAD_PYTHON_DOES_NOT_KNOW)
    assert ended.returncode == ExitCode.ILLEGAL_INSTRUCTION
    assert ended.stderr.startswith("worker:1: illegal instruction")
    assert len(ended.stderr.splitlines()) == 1


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        cwd=PROJECT,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
        timeout=HANG_SECONDS,
    )


ABORT = """
import os, resource, sys
from cluster.server.role import report_crashes
report_crashes(lambda words: f"ps:0: {words}")
if sys.argv[1] == "without memory":
    pages = int(open("/proc/self/statm").read().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**24, resource.RLIM_INFINITY))
os.abort()
"""


@pytest.mark.parametrize(
    ("how", "code", "said"),
    [
        ("without memory", ExitCode.TOO_LITTLE_MEMORY, "ps:0: out of memory: the address space limit (ulimit -v)"),
        ("with memory", -6, ""),
    ],
)
def test_an_abort_for_want_of_memory_is_told_from_others(how: str, code: int, said: str) -> None:
    """std::bad_alloc and a thread that cannot be made end in abort(), as a failed assertion of TensorFlow's does."""
    ended = python(ABORT, how)
    assert ended.returncode == code
    assert ended.stderr.startswith(said)
    assert len(ended.stderr.splitlines()) == bool(said)
