"""Processes of a program from their start to their end, whatever they do meanwhile."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.programs import group
from cluster.programs.group import (
    Group,
    GroupMember,
    ending_in_words,
    exit_code,
    signal_name,
)
from cluster.programs.process import ProgramProcess, end_marked, marked
from cluster.programs.program import MARK_VARIABLE, ProgramMember
from core.cage import landlock
from core.ground.errors import ClusterError
from tests.deploy.playing import eventually, gone
from tests.habits import needs
from tests.ran import python


def run(
    folder: Path, *sources: str, cancelled: Callable[[], bool] = lambda: False
) -> tuple[Group, list[bytes]]:
    """A program of these parts, run to its end, and what each part said."""
    parts = []
    heard = []
    for index, source in enumerate(sources):
        path = folder / f"{index}.py"
        path.write_text(textwrap.dedent(source))
        environment = {**os.environ, MARK_VARIABLE: str(folder), "PYTHONUNBUFFERED": "1"}
        process = ProgramProcess([sys.executable, "-S", str(path)], environment, folder)
        member = ProgramMember(f"worker:{index}", "here", "127.0.0.1", 0)
        heard.append(bytearray())
        parts.append(GroupMember(member, process, heard[-1].extend))
    made = Group(parts, cancelled)
    made.run()
    return made, [bytes(one) for one in heard]


def codes(made: Group) -> list[int | None]:
    return [one.return_code for one in made.members]


def test_output_and_codes_of_all_are_heard(tmp_path: Path) -> None:
    made, heard = run(
        tmp_path,
        "print('one', end='')",
        "import sys; sys.stderr.write('two'); print(sys.stdin.read())",
    )
    assert heard == [b"one", b"two\n"]
    assert codes(made) == [0, 0]
    assert made.first_failed is None
    assert all(one.used.cpu_seconds > 0 and one.used.peak_bytes > 1 << 20 for one in made.members)


def test_the_first_failure_ends_the_others_and_has_the_name(tmp_path: Path) -> None:
    waits = "import time; time.sleep(600)"
    made, _ = run(tmp_path, waits, "raise SystemExit(7)", waits)
    assert made.first_failed is made.members[1]
    assert codes(made) == [-signal.SIGTERM, 7, -signal.SIGTERM]
    assert [one.ended_by_us for one in made.members] == [True, False, True]


def test_a_cancelled_program_gets_an_interrupt_as_of_a_terminal(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    source = f"""
        import time
        try:
            open({str(ready)!r}, "w").close()
            time.sleep(600)
        except KeyboardInterrupt:
            print("saved")
            raise SystemExit(5)
    """
    made, heard = run(tmp_path, source, cancelled=ready.exists)
    assert (heard, codes(made), made.first_failed) == ([b"saved\n"], [5], None)


def test_a_program_that_ignores_every_signal_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group, "INTERRUPTED_SECONDS", 0.2)
    monkeypatch.setattr(group, "TERMINATED_SECONDS", 0.2)
    ready = tmp_path / "ready"
    source = f"""
        import signal, time
        signal.signal(signal.SIGINT, signal.SIG_IGN); signal.signal(signal.SIGTERM, signal.SIG_IGN)
        open({str(ready)!r}, "w").close()
        time.sleep(600)
    """
    made, _ = run(tmp_path, source, cancelled=ready.exists)
    assert codes(made) == [-signal.SIGKILL]


def test_children_of_a_program_end_with_it_also_in_a_session_of_their_own(tmp_path: Path) -> None:
    source = """
        import os, sys, time
        for own_session in (False, True):
            if os.fork() == 0:
                if own_session:
                    os.setsid()
                    if os.fork():
                        os._exit(0)
                os.write(1, b"%s %d\\n" % (b"away" if own_session else b"here", os.getpid()))
                time.sleep(600)
        time.sleep(0.5)
    """
    made, (heard,) = run(tmp_path, source)
    pids = {name: int(pid) for name, pid in (line.split() for line in heard.splitlines())}
    assert set(pids) == {b"here", b"away"}
    assert codes(made) == [0]
    eventually(lambda: gone(pids[b"here"]), "the end of the child in the program's own session")
    assert end_marked(str(tmp_path)) == 1
    assert marked(str(tmp_path)) == []
    eventually(lambda: gone(pids[b"away"]), "the end of the other child")


@pytest.mark.parametrize("how", ["own session", "forked twice", "while it runs"])
def test_children_with_an_environment_of_their_own_end_too(how: str, tmp_path: Path) -> None:
    source = f"""
        import os, subprocess, sys, time
        sleep = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
        if {how!r} == "own session":
            child = subprocess.Popen(
                sleep, env={{"PATH": "/bin"}}, start_new_session=True, stdout=subprocess.DEVNULL
            )
            print(child.pid)
        else:
            pid = os.fork()
            if pid == 0:
                os.setsid()
                if (second := os.fork()) == 0:
                    os.dup2(os.open(os.devnull, os.O_RDWR), 1)
                    os.execve(sys.executable, sleep, {{}})
                print(second, flush=True)
                os._exit(0)
            os.waitpid(pid, 0)
            if {how!r} == "while it runs":
                os.abort()
    """
    mine = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
    try:
        _, (heard,) = run(tmp_path, source)
        (pid,) = (int(line) for line in heard.split() if line.isdigit())
        assert not gone(pid)
        assert end_marked(str(tmp_path)) == 1
        eventually(lambda: gone(pid), "the end of the child")
        assert mine.poll() is None
    finally:
        mine.kill()
        mine.wait()


def test_much_output_arrives_whole(tmp_path: Path) -> None:
    _, (heard,) = run(tmp_path, "import sys; sys.stdout.buffer.write(b'\\x00\\xff' * 2_000_000)")
    assert heard == b"\x00\xff" * 2_000_000


def test_a_program_that_cannot_be_started_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(
        ClusterError, match="/no/python: the program cannot be started: No such file"
    ):
        ProgramProcess(["/no/python"], {}, tmp_path)


NO_RUN = """
import subprocess
from cluster.programs.process import end_marked
with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as own:
    print(end_marked("/no/such/run"), own.poll())
"""


def test_no_child_counts_as_left_behind_before_a_program_ran() -> None:
    assert python("-c", NO_RUN) == "0 None\n"


def test_a_process_enters_its_cage_first(tmp_path: Path) -> None:
    needs.possible("" if landlock.abi() else landlock.kernel_coverage().reason)
    inside = tmp_path / "inside"
    inside.mkdir()
    write = "from pathlib import Path; Path('here').touch(); Path('../there').touch()"
    rights = landlock.Rights(read=("/",), write=(inside,), devices=("/dev/null",))
    with landlock.Cage(rights) as cage:
        words = [sys.executable, "-S", "-c", write]
        process = ProgramProcess(words, os.environ, inside, cage=cage)
    member = ProgramMember("worker:0", "here", "127.0.0.1", 0)
    heard = bytearray()
    Group([GroupMember(member, process, heard.extend)], lambda: False).run()
    assert b"PermissionError: [Errno 13] Permission denied: '../there'" in heard
    assert (inside / "here").exists()


@pytest.mark.parametrize(
    ("code", "in_shell", "name"),
    [(None, None, None), (3, 3, None), (-9, 137, "SIGKILL"), (-200, 328, "signal 200")],
)
def test_how_a_process_ended(code: int | None, in_shell: int | None, name: str | None) -> None:
    assert (exit_code(code), signal_name(code)) == (in_shell, name)
    if code is not None:
        words = f"exit code {code}" if name is None else f"signal {-code} ({name})"
        assert ending_in_words(code) == words
