import errno
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from core.cage import calls
from core.cage.calls import CALLS, CallRights
from core.cage.landlock import (
    ALLOW,
    AND,
    ERRNO,
    JUMP_IF_AT_LEAST,
    JUMP_IF_EQUAL,
    LOAD,
    MACHINES,
    RETURN,
    Instruction,
)
from core.cage.profiles import calls_of
from tests.habits import needs
from tests.ran import python
from tests.tables import table

EPERM = ERRNO | errno.EPERM
X86 = "x86_64"
ARM = "aarch64"
COLUMN = {X86: 0, ARM: 1}
NOTHING: Mapping[int, int] = {}


def decided(
    program: Sequence[Instruction],
    architecture: int,
    number: int,
    words: Mapping[int, int] = NOTHING,
) -> int:
    """What the kernel's interpreter answers; `words` are arguments by number, else 0."""
    data = {0: number, 4: architecture} | {16 + 8 * one: words.get(one, 0) for one in range(6)}
    at = 0
    register = 0
    while True:
        operation, yes, no, operand = program[at]
        at += 1
        match operation:
            case 0x20:
                assert operation == LOAD
                register = data[operand]
            case 0x54:
                assert operation == AND
                register &= operand
            case 0x06:
                assert operation == RETURN
                return operand
            case _:
                holds = {
                    JUMP_IF_EQUAL: register == operand,
                    JUMP_IF_AT_LEAST: register >= operand,
                }[operation]
                at += yes if holds else no


@pytest.mark.parametrize("machine", [X86, ARM])
def test_the_filter_decides_by_the_numbers_of_its_machine(machine: str) -> None:
    column = COLUMN[machine]
    own = MACHINES[machine].architecture
    program = calls.instructions(machine, CallRights(), signals_only_to=77)
    free = calls.instructions(machine, calls_of("job"))
    model = calls.instructions(machine, calls_of("model"))
    pair = NUMBERS["socketpair"][column]
    assert pair is not None
    assert decided(model, own, pair, {0: 1, 1: 1}) == EPERM
    named = {one.numbers[column] for one in CALLS} | {calls.SOCKET[column], *calls.UNSEEN}
    for whom, name, numbers, rules in CALLS:
        number = numbers[column]
        if number is not None and not rules:
            assert decided(program, own, number) == EPERM, name
            allowed = ALLOW if whom in ("execute", "free", "signal", "sender") else EPERM
            assert decided(free, own, number) == allowed, name
    unnamed = set(range(600)) - named
    assert {decided(program, own, number) for number in unnamed} == {ALLOW}


@pytest.mark.parametrize("machine", [X86, ARM])
def test_another_machines_manner_is_refused(machine: str) -> None:
    program = calls.instructions(machine, CallRights())
    i386 = 0x40000003
    other = MACHINES[{X86: ARM, ARM: X86}[machine]].architecture
    assert decided(program, i386, 0) == EPERM
    assert decided(program, other, 0) == EPERM
    assert decided(program, MACHINES[machine].architecture, calls.X32 | 39) == EPERM


NUMBERS = {
    **{name: numbers for _, name, numbers, _ in CALLS},
    "socket": calls.SOCKET,
    "clone3": (435, 435),
    "openat2": (437, 437),
}
ANSWERS = {"allowed": ALLOW, "EPERM": EPERM, "ENOSYS": ERRNO | errno.ENOSYS}


@pytest.mark.parametrize("machine", [X86, ARM])
@pytest.mark.parametrize(("call", "arguments", "answer"), table("core/cage/tables", "calls"))
def test_arguments_decide(machine: str, call: str, arguments: dict[int, int], answer: str) -> None:
    program = calls.instructions(machine, CallRights(), signals_only_to=77)
    number = NUMBERS[call][COLUMN[machine]]
    assert number is not None
    found = decided(program, MACHINES[machine].architecture, number, arguments)
    assert found == ANSWERS[answer]


HEADERS = {
    X86: Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    ARM: Path("/usr/include/asm-generic/unistd.h"),
}


@pytest.mark.parametrize("machine", HEADERS)
def test_the_numbers_are_those_of_the_kernels_tables(machine: str) -> None:
    """As the C library's headers have them, where they are installed."""
    if not HEADERS[machine].exists():
        needs.skip(f"no {HEADERS[machine]}")
    said = dict(
        re.findall(
            r"#define __NR(?:3264)?_(\w+) (\d+)$", HEADERS[machine].read_text(), re.MULTILINE
        )
    )
    for name, numbers in NUMBERS.items():
        number = numbers[COLUMN[machine]]
        assert said.get(name, str(number)) == str(number), name
        assert number is not None or name not in said
    assert len({*said} & {*NUMBERS}) > 70


CHILD = """
import json, os, subprocess, sys, threading
from core.cage import calls
given = json.loads(sys.argv[1])
calls.forbid(calls.CallRights(**given), signals_only_to=os.getpid())
answers = {}
def tried(name, work):
    try:
        answers[name] = work()
    except OSError as problem:
        answers[name] = -problem.errno
tried("execute", lambda: subprocess.run(["/bin/true"]).returncode)
tried("parent", lambda: os.kill(os.getppid(), 0))
tried("itself", lambda: os.kill(os.getpid(), 0))
tried("fork", lambda: os.waitpid(os.fork() or os._exit(0), 0)[1])
ran = []
thread = threading.Thread(target=lambda: ran.append(1)); thread.start(); thread.join()
answers["thread"] = ran
print(json.dumps(answers))
"""


@pytest.mark.parametrize("execute", [False, True])
def test_this_kernel_refuses_and_goes_on_with_threads_and_forks(execute: bool) -> None:
    refused = -errno.EPERM
    assert json.loads(python("-c", CHILD, json.dumps({"execute": execute}))) == {
        "execute": 0 if execute else refused,
        "parent": refused,
        "itself": None,
        "fork": 0,
        "thread": [1],
    }
