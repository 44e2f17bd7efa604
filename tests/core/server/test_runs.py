"""A role that keeps too many threads ends when no run is open, where another one follows it."""

import threading
from itertools import chain, repeat

import pytest

from core.ground.errors import ExitCode
from core.logs.lines import Speaker
from core.server import role, runs
from core.server.options import options, parse


@pytest.mark.parametrize(
    ("threads", "room", "restarts"),
    [(70, 70, False), (71, 70, True), (41, -1, True), (40, -1, False)],
)
def test_a_role_restarts_once_its_limits_do_not_leave_its_threads_again(
    threads: int, room: int, restarts: bool
) -> None:
    assert (runs.reason_to_restart(40, threads, room) is not None) == restarts


@pytest.fixture
def _keeps_eleven_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = chain([(40, 100)], repeat((51, 10)))
    monkeypatch.setattr(runs, "read_threads", lambda: next(readings))


@pytest.mark.usefixtures("_keeps_eleven_threads")
@pytest.mark.parametrize(
    ("supervisor", "restarts"),
    [("--coordinator=192.0.2.1", True), ("NOTIFY_SOCKET", True), ("--peers=2", False)],
)
def test_it_ends_after_its_answer_where_another_process_follows(
    monkeypatch: pytest.MonkeyPatch, supervisor: str, restarts: bool
) -> None:
    ended: list[tuple[str, ExitCode]] = []
    monkeypatch.setattr(role, "_end", lambda why, code: ended.append((why, code)))
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    flags = ["--task=0", "--host=127.0.0.1", "--port=1", "--metrics-port=2"]
    if supervisor.startswith("--"):
        flags.append(supervisor)
    else:
        monkeypatch.setenv(supervisor, "/nowhere")
    actions = role._actions(options("ps", parse("ps", flags)), Speaker("ps:0"), lambda: False)
    assert actions.begin_run
    assert actions.end_run
    actions.begin_run("one")
    then = actions.end_run("one")
    assert not ended
    if then:
        then()
        ((reason, code),) = ended
        assert "it has 51 threads, 11 more than before its first run" in reason
        assert code == ExitCode.RESTART_ASKED
    assert bool(ended) == restarts


@pytest.mark.usefixtures("_keeps_eleven_threads")
def test_it_stays_while_a_run_is_open() -> None:
    reasons: list[str] = []
    open_runs = runs.Runs(Speaker("ps:0"), reasons.append)
    open_runs.begin("one")
    open_runs.begin("two")
    assert open_runs.end("one") is None
    then = open_runs.end("two")
    assert then
    open_runs.begin("three")
    then()
    assert not reasons


@pytest.mark.usefixtures("_keeps_eleven_threads")
def test_a_run_that_begins_as_the_process_ends_gets_no_answer() -> None:
    waits: list[bool] = []

    def leave(_: str) -> None:
        begins.start()
        begins.join(0.1)
        waits.append(begins.is_alive())

    open_runs = runs.Runs(Speaker("ps:0"), leave)
    begins = threading.Thread(target=open_runs.begin, args=("two",))
    open_runs.begin("one")
    then = open_runs.end("one")
    assert then
    then()
    begins.join()
    assert waits == [True]
