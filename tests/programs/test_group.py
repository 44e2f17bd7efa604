"""Processes of a program from their start to their end, whatever they do meanwhile."""

import os
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.errors import ClusterError
from cluster.programs import group
from cluster.programs.group import Group, Part
from cluster.programs.leftovers import end_marked, marked
from cluster.programs.process import ProgramProcess
from cluster.programs.roster import MARK_VARIABLE, Member
from tests.deploy.playing import eventually, gone


def part(folder: Path, source: str, name: str = "chief") -> Part:
    path = folder / f"{name.replace(':', '-')}.py"
    path.write_text(textwrap.dedent(source))
    environment = {**os.environ, MARK_VARIABLE: str(folder), "PYTHONUNBUFFERED": "1"}
    process = ProgramProcess([sys.executable, "-S", str(path)], environment, folder)
    return Part(Member(name, "here", "127.0.0.1", 0), process, [].append)  # type: ignore[arg-type]


def run(folder: Path, *sources: str, cancelled: Callable[[], bool] = lambda: False) -> tuple[Group, list[bytes]]:
    parts = [part(folder, source, f"worker:{index}") for index, source in enumerate(sources)]
    heard: list[bytes] = [b""] * len(parts)
    for index, one in enumerate(parts):

        def hear(piece: bytes, index: int = index) -> None:
            heard[index] += piece

        one.hear = hear
    made = Group(parts, cancelled)
    made.run()
    return made, heard


def test_output_and_codes_of_all_are_heard(tmp_path: Path) -> None:
    made, heard = run(tmp_path, "print('one', end='')", "import sys; sys.stderr.write('two'); print(sys.stdin.read())")
    assert heard == [b"one", b"two\n"]
    assert [one.return_code for one in made.parts] == [0, 0]
    assert made.first_failed is None
    assert all(one.used.cpu_seconds > 0 and one.used.peak_bytes > 1 << 20 for one in made.parts)


def test_the_first_failure_ends_the_others_and_has_the_name(tmp_path: Path) -> None:
    waits = "import time; time.sleep(600)"
    made, _ = run(tmp_path, waits, "raise SystemExit(7)", waits)
    assert made.first_failed is made.parts[1]
    assert [one.return_code for one in made.parts] == [-signal.SIGTERM, 7, -signal.SIGTERM]
    assert [one.asked for one in made.parts] == [True, False, True]


def test_a_cancelled_program_gets_an_interrupt_as_of_a_terminal(tmp_path: Path) -> None:
    asked = threading.Event()
    source = f"""
        import time
        try:
            open({str(tmp_path / "ready")!r}, "w").close()
            time.sleep(600)
        except KeyboardInterrupt:
            print("saved")
            raise SystemExit(5)
    """

    def ask_when_ready() -> bool:
        if (tmp_path / "ready").exists():
            asked.set()
        return asked.is_set()

    made, heard = run(tmp_path, source, cancelled=ask_when_ready)
    assert heard == [b"saved\n"]
    assert made.parts[0].return_code == 5
    assert made.first_failed is None


def test_a_program_that_ignores_every_signal_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "INTERRUPTED_SECONDS", 0.2)
    monkeypatch.setattr(group, "TERMINATED_SECONDS", 0.2)
    source = f"""
        import signal, time
        signal.signal(signal.SIGINT, signal.SIG_IGN); signal.signal(signal.SIGTERM, signal.SIG_IGN)
        open({str(tmp_path / "ready")!r}, "w").close()
        time.sleep(600)
    """
    made, _ = run(tmp_path, source, cancelled=(tmp_path / "ready").exists)
    assert made.parts[0].return_code == -signal.SIGKILL


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
    begun = time.monotonic()
    made, heard = run(tmp_path, source)
    assert time.monotonic() - begun < 60
    pids = {line.split()[0]: int(line.split()[1]) for line in heard[0].splitlines()}
    assert set(pids) == {b"here", b"away"}
    assert made.parts[0].return_code == 0
    eventually(lambda: gone(pids[b"here"]), "the end of the child in the program's own session")
    assert end_marked(str(tmp_path)) == 1
    assert marked(str(tmp_path)) == []
    eventually(lambda: gone(pids[b"away"]), "the end of the other child")


def test_much_output_arrives_whole(tmp_path: Path) -> None:
    _, heard = run(tmp_path, "import sys; sys.stdout.buffer.write(b'\\x00\\xff' * 2_000_000)")
    assert heard[0] == b"\x00\xff" * 2_000_000


def test_a_program_that_cannot_be_started_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="/no/python: the program cannot be started: No such file"):
        ProgramProcess(["/no/python"], {}, tmp_path)
