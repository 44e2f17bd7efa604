"""A role that keeps too many threads ends when no run is open, where another one follows it."""

import threading
from collections.abc import Callable

import pytest

from core.control.actions import Actions
from core.ground.errors import ExitCode
from core.logs.lines import Speaker
from core.server import role, runs
from core.server.options import options, parse

AT_FIRST = 40
COORDINATOR = ("--coordinator", "192.0.2.1")
Play = Callable[..., tuple[Actions, list[tuple[str, ExitCode]]]]


@pytest.mark.parametrize(
    ("threads", "room", "restarts"),
    [(70, 30, False), (71, 30, True), (AT_FIRST, 0, False), (AT_FIRST, -1, False)],
)
def test_a_role_restarts_once_it_keeps_more_threads_than_its_limits_leave(
    threads: int, room: int, restarts: bool
) -> None:
    reason = runs.reason_to_restart(AT_FIRST, threads, room)
    assert (reason is not None) == restarts


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    """Return the actions of a role with these flags that keeps 11 threads, and how it ended."""

    def played(*flags: str) -> tuple[Actions, list[tuple[str, ExitCode]]]:
        ended: list[tuple[str, ExitCode]] = []
        readings = iter([(AT_FIRST, 100), *[(AT_FIRST + 11, 10)] * 9])
        monkeypatch.setattr(runs, "read_threads", lambda: next(readings))
        monkeypatch.setattr(role, "_end", lambda why, code: ended.append((why, code)))
        place = ["--task", "0", "--host", "127.0.0.1", "--port", "1", "--metrics-port", "2"]
        chosen = options("ps", parse("ps", [*place, *flags]))
        actions = role._actions(chosen, Speaker("ps:0"), lambda: False)
        assert actions.begin_run is not None
        actions.begin_run("one")
        return actions, ended

    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    return played


@pytest.mark.parametrize("socket", [True, False], ids=["supervisor", "coordinator"])
def test_it_ends_after_its_answer(
    play: Play, monkeypatch: pytest.MonkeyPatch, *, socket: bool
) -> None:
    if socket:
        monkeypatch.setenv("NOTIFY_SOCKET", "/nowhere")
    actions, ended = play(*(() if socket else COORDINATOR))
    assert actions.end_run is not None
    then = actions.end_run("one")
    assert (then is not None, ended) == (True, [])
    if then:
        then()
    ((reason, code),) = ended
    assert code == ExitCode.RESTART_ASKED
    assert "keeps 11 threads" in reason
    assert "leave 10" in reason


def test_it_stays_where_no_other_process_would_follow(play: Play) -> None:
    actions, _ = play()
    assert actions.end_run is not None
    assert actions.end_run("one") is None


def test_a_run_that_begins_as_the_process_ends_gets_no_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[bool] = []

    def leave(_: str) -> None:
        begins.start()
        begins.join(0.1)
        waits.append(begins.is_alive())

    open_runs = runs.Runs(Speaker("ps:0"), leave)
    begins = threading.Thread(target=open_runs.begin, args=("two",))
    monkeypatch.setattr(runs, "read_threads", lambda: (1, 0))
    open_runs.begin("one")
    monkeypatch.setattr(runs, "read_threads", lambda: (2, 0))
    then = open_runs.end("one")
    assert then is not None
    then()
    begins.join()
    assert waits == [True]


def test_it_remembers_a_bounded_number_of_runs_that_never_end() -> None:
    open_runs = runs.Runs(Speaker("ps:0"), None)
    for number in range(runs.MOST_OPEN_RUNS + 1):
        open_runs.begin(f"{number}")
    assert len(open_runs._open) == runs.MOST_OPEN_RUNS


def test_it_stays_while_a_run_is_open(play: Play) -> None:
    actions, ended = play(*COORDINATOR)
    assert actions.begin_run is not None
    assert actions.end_run is not None
    actions.begin_run("two")
    assert actions.end_run("one") is None
    then = actions.end_run("two")
    actions.begin_run("three")
    if then:
        then()
    assert (then is not None, ended) == (True, [])
    assert actions.end_run("two") is None
