import errno
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from core.cage import calls
from core.cage.kernel import (
    ALLOW,
    ERRNO,
    JUMP_IF_ANY_BIT,
    JUMP_IF_AT_LEAST,
    JUMP_IF_EQUAL,
    LOAD,
    MACHINES,
    RETURN,
    Instruction,
)
from tests.habits import needs
from tests.tables import table

EPERM = ERRNO | errno.EPERM
X86 = "x86_64"
ARM = "aarch64"
COLUMN = {X86: 0, ARM: 1}


def decided(
    program: Sequence[Instruction], architecture: int, number: int, first: int = 0, third: int = 0
) -> int:
    """What the kernel's interpreter answers; the second argument is as the third."""
    data = {0: number, 4: architecture, 16: first, 24: third, 32: third}
    at = 0
    register = 0
    while True:
        operation, yes, no, operand = program[at]
        at += 1
        match operation:
            case 0x20:
                assert operation == LOAD
                register = data[operand]
            case 0x06:
                assert operation == RETURN
                return operand
            case _:
                holds = {
                    JUMP_IF_EQUAL: register == operand,
                    JUMP_IF_AT_LEAST: register >= operand,
                    JUMP_IF_ANY_BIT: bool(register & operand),
                }[operation]
                at += yes if holds else no


@pytest.mark.parametrize("machine", [X86, ARM])
def test_the_filter_decides_by_the_numbers_of_its_machine(machine: str) -> None:
    column = COLUMN[machine]
    own = MACHINES[machine].architecture
    program = calls.instructions(machine, may_execute=False, signals_only_to=None)
    for name, numbers in {**calls.FORBIDDEN, **calls.EXECUTE}.items():
        assert decided(program, own, numbers[column]) == EPERM, name
    every = {
        one[column]
        for table in (calls.FORBIDDEN, calls.EXECUTE, calls.SOCKETS)
        for one in table.values()
    }
    free = set(range(600)) - every - {calls.CLONE[column], calls.CLONE3[column]}
    assert {decided(program, own, number) for number in free} == {ALLOW}


@pytest.mark.parametrize("machine", [X86, ARM])
def test_another_machines_manner_is_refused(machine: str) -> None:
    program = calls.instructions(machine, may_execute=True, signals_only_to=None)
    i386 = 0x40000003
    other = MACHINES[{X86: ARM, ARM: X86}[machine]].architecture
    assert decided(program, i386, 0) == EPERM
    assert decided(program, other, 0) == EPERM
    assert decided(program, MACHINES[machine].architecture, calls.X32 | 39) == EPERM


NUMBERS = {
    **calls.EXECUTE,
    **calls.SOCKETS,
    **calls.BY_PROCESS,
    **calls.TERMINALS,
    "clone": calls.CLONE,
    "clone3": calls.CLONE3,
}
ANSWERS = {"allowed": ALLOW, "EPERM": EPERM, "ENOSYS": ERRNO | errno.ENOSYS}


@pytest.mark.parametrize("machine", [X86, ARM])
@pytest.mark.parametrize(("call", "arguments", "answer"), table("core/cage/tables", "calls"))
def test_arguments_decide_sockets_threads_and_signals(
    machine: str, call: str, arguments: dict[str, int], answer: str
) -> None:
    program = calls.instructions(machine, may_execute=True, signals_only_to=77)
    number = NUMBERS[call][COLUMN[machine]]
    found = decided(program, MACHINES[machine].architecture, number, **arguments)
    assert found == ANSWERS[answer]


HEADER = Path("/usr/include/asm-generic/unistd.h")


def test_the_numbers_are_those_of_the_kernels_tables() -> None:
    """Both tables as the C library's headers have them, where they are installed."""
    generic = {
        name: numbers[1]
        for table in (
            calls.FORBIDDEN,
            calls.EXECUTE,
            calls.SOCKETS,
            calls.BY_PROCESS,
            calls.TERMINALS,
        )
        for name, numbers in table.items()
    }
    assert len(set(generic.values())) == len(generic)
    if not HEADER.exists():
        needs.skip(f"no {HEADER}")
    said = dict(
        line.split()[1:3]
        for line in HEADER.read_text().splitlines()
        if line.startswith("#define __NR_") and len(line.split()) == 3
    )
    for name, number in generic.items():
        if f"__NR_{name}" in said:
            assert said[f"__NR_{name}"] == str(number), name


CHILD = """
import ctypes, errno, json, os, socket, subprocess, sys, threading
from core.cage import calls
given = json.loads(sys.argv[1])
if given.pop("own", False):
    given["signals_only_to"] = os.getpid()
calls.forbid(**given)
answers = {}
def tried(name, work):
    try:
        answers[name] = work()
    except OSError as problem:
        answers[name] = -problem.errno
libc = ctypes.CDLL(None, use_errno=True)
def called(*words):
    if libc.syscall(*map(ctypes.c_long, words)) < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return 0
tried("execute", lambda: subprocess.run(["/bin/true"]).returncode)
tried("packet", lambda: socket.socket(17, socket.SOCK_RAW).close())
tried("inet", lambda: socket.socket().close())
tried("namespace", lambda: called(*json.loads(sys.argv[2])))
tried("parent", lambda: os.kill(os.getppid(), 0))
tried("itself", lambda: os.kill(os.getpid(), 0))
tried("fork", lambda: os.waitpid(os.fork() or os._exit(0), 0)[1])
ran = []
thread = threading.Thread(target=lambda: ran.append(1)); thread.start(); thread.join()
answers["thread"] = ran
print(json.dumps(answers))
"""


def in_child(**given: object) -> dict[str, object]:
    unshare = calls.FORBIDDEN["unshare"][COLUMN[os.uname().machine]]
    done = subprocess.run(
        [sys.executable, "-c", CHILD, json.dumps(given), json.dumps([unshare, 0x10000000])],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers: dict[str, object] = json.loads(done.stdout)
    return answers


def test_this_kernel_refuses_and_goes_on_with_threads_and_forks() -> None:
    answers = in_child(own=True)
    refused = -errno.EPERM
    assert answers == {
        "execute": refused,
        "packet": refused,
        "inet": None,
        "namespace": refused,
        "parent": refused,
        "itself": None,
        "fork": 0,
        "thread": [1],
    }


def test_a_process_that_becomes_another_program_may_execute() -> None:
    answers = in_child(may_execute=True)
    assert answers["execute"] == 0
    assert answers["namespace"] == -errno.EPERM
    assert answers["parent"] is None
