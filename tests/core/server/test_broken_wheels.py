"""What a role says and how it ends where TensorFlow is missing, broken or built for others."""

from pathlib import Path

import psutil
import pytest

from core.ground.errors import ExitCode
from core.server.process import processor
from tests.core.server.fake_wheels import crashing_library, fake_wheel
from tests.core.server.processes import PROJECT, ended, place, python
from tests.ports import free_ports


def start_with(wheel: Path) -> tuple[int, list[str]]:
    ports = free_ports(2)
    environment = {"PYTHONPATH": str(wheel)}
    code, lines = ended("ps_node", *place(ports[0], ports[1]), environment=environment)
    # Root's role first says in its log that it is root's.
    return code, [line for line in lines if " INFO " not in line]


def test_an_illegal_instruction_is_one_line_with_its_own_exit_code(tmp_path: Path) -> None:
    code, (line,) = start_with(fake_wheel(tmp_path, crashing_library(), b""))
    assert code == ExitCode.ILLEGAL_INSTRUCTION
    assert f": illegal instruction: this processor ({processor()}) lacks one" in line
    assert line.startswith("ps:0 127.0.0.1:")


@pytest.mark.parametrize(
    ("libraries", "words"),
    [
        ((crashing_library(), None), "has no libtensorflow_cc.so.2"),
        ((b"truncated", b""), "libtensorflow_framework.so.2 cannot be loaded"),
    ],
)
def test_a_library_that_cannot_be_used_is_named_with_the_reason(
    tmp_path: Path, libraries: tuple[bytes, bytes | None], words: str
) -> None:
    code, (line,) = start_with(fake_wheel(tmp_path, *libraries))
    assert code == ExitCode.WHEEL_MISSING
    assert words in line


@pytest.mark.parametrize("server", ["lean", "stock"])
def test_a_python_without_tensorflow_is_one_line_with_the_remedy(
    tmp_path: Path, server: str
) -> None:
    installed = Path(psutil.__file__).parents[1]
    for package in ("psutil", "prometheus_client"):
        (tmp_path / package).symlink_to(installed / package)
    start = f"import sys; sys.path[:0] = [{str(PROJECT)!r}, {str(tmp_path)!r}]\n"
    start += "from core.server.role import main\nsys.exit(main('ps', sys.argv[1:]))"
    port, metrics_port = free_ports(2)
    flags = [*place(port, metrics_port), "--server", server]
    done = python("-I", "-S", "-c", start, *flags)
    assert done.returncode == ExitCode.WHEEL_MISSING, done.stderr
    line = done.stderr.splitlines()[-1]
    assert line.startswith("ps:0 127.0.0.1:")
    assert ": TensorFlow is not installed for" in line
    assert line.endswith("run `make .venv`")
    assert "Traceback" not in done.stderr


ILLEGAL_IN_A_THREAD_PYTHON_DOES_NOT_KNOW = """
import ctypes, mmap, socket
from core.server.process import report_crashes
from tests.core.server.fake_wheels import UNDEFINED_INSTRUCTION
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
    """As a kernel would meet it that is first used in the middle of a job."""
    done = python("-c", ILLEGAL_IN_A_THREAD_PYTHON_DOES_NOT_KNOW)
    assert done.returncode == ExitCode.ILLEGAL_INSTRUCTION
    assert done.stderr.startswith("worker:1: illegal instruction")
    assert len(done.stderr.splitlines()) == 1


ABORT = """
import os, resource, sys
from core.server.process import report_crashes
report_crashes(lambda words: f"ps:0: {words}")
if sys.argv[1] == "without memory":
    pages = int(open("/proc/self/statm").read().split()[0])
    most = pages * resource.getpagesize() + 2**24
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
os.abort()
"""


@pytest.mark.parametrize(
    ("how", "code", "said"),
    [
        (
            "without memory",
            ExitCode.TOO_LITTLE_MEMORY,
            "ps:0: out of memory: the address space limit (ulimit -v)",
        ),
        ("with memory", -6, ""),
    ],
)
def test_an_abort_for_want_of_memory_is_told_from_others(how: str, code: int, said: str) -> None:
    """std::bad_alloc and a thread that cannot be made end in abort()."""
    done = python("-c", ABORT, how)
    assert done.returncode == code
    assert done.stderr.startswith(said)
    assert len(done.stderr.splitlines()) == bool(said)
