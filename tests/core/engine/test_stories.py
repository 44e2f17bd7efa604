"""The membership cases told by real processes.

The coordinator, too, is one of its own, for it may be killed.

Every update is a gradient of -1 under plain SGD with rate 1, so each parameter at the end is the
number of updates its shard applied, and `exactly_once` says that each scheduled id was applied
once, everywhere. Times are not asserted, only that the story ends within its deadline.
"""

import json
import subprocess
import sys
import tempfile
import threading
from typing import IO, Any

import pytest

from tests.core.server.processes import HANG_SECONDS
from tests.habits.leaks import PROJECT
from tests.tables import table

LOADING_SECONDS = 110
"""Until the process has loaded TensorFlow. Measured beside a dozen busy processes on two cores: 41
to 47 s of the 71 to 73 s that `half_stopped` took, its eleven roles another 16 to 18 s, and the
story itself 10 s."""
STORY_SECONDS = 110

GONE = "is gone (it has answered no probe for 1"

pytestmark = [pytest.mark.long, pytest.mark.timeout(LOADING_SECONDS + STORY_SECONDS + 20)]


def tell(name: str) -> dict[str, Any]:
    """Run one story and return what it reported."""
    command = [sys.executable, "-m", "tests.core.engine.scenario", name]
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            command, cwd=PROJECT, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        assert process.stdout is not None
        lines = [
            _line_within(seconds, process, process.stdout)
            for seconds in (LOADING_SECONDS, STORY_SECONDS)
        ]
        code = process.wait(HANG_SECONDS)
        errors.seek(0)
        print(*lines, errors.read())  # pytest shows it if an assertion fails
    assert (code, lines[0]) == (0, "begun\n")
    found: dict[str, Any] = json.loads(lines[1])
    return found


def _line_within(seconds: float, process: "subprocess.Popen[str]", stream: IO[str]) -> str:
    """The next line of the process, which is killed if it does not come in time."""
    alarm = threading.Timer(seconds, process.kill)
    alarm.start()
    try:
        return stream.readline()
    finally:
        alarm.cancel()
        alarm.join()


def exactly_once(story: dict[str, Any]) -> bool:
    """Whether every shard applied every scheduled id exactly once."""
    return bool(story["minimum"] == story["maximum"] == story["applied"] == story["scheduled"] > 0)


@pytest.mark.parametrize(("name", "facts", "workers"), table("core/engine/tables", "away"))
def test_a_worker_that_does_not_answer_delays_no_other_and_joins_when_it_does(
    name: str, facts: dict[str, int], workers: dict[str, list[int]]
) -> None:
    story = tell(name)
    assert exactly_once(story)
    assert story.items() >= facts.items()
    assert story["worked"].items() >= workers.items()


def test_lean_and_stock_servers_serve_one_cluster() -> None:
    story = tell("mixed_servers")
    assert exactly_once(story)
    assert story["worked"]["first"] == [0, 1]


def test_to_ask_a_server_sends_no_function_to_workers_of_which_one_may_be_stopped() -> None:
    assert tell("server_asked") == {"sent": []}


def test_a_workers_bad_path_to_a_parameter_server_ends_nobodys_job_and_costs_only_that_worker() -> (
    None
):
    story = tell("path_cut")
    assert exactly_once(story)
    assert story["shut"] > 0
    assert story["departures"]["0"] >= 5, "it tried, with growing waits"
    assert story["departures"]["1"] == 0
    assert story["worked"]["first"] == [0, 1]
    assert 0 in list(story["worked"].values())[-1], "and is back once its path is good"


def test_many_that_stop_at_once_leave_in_one_change_while_the_others_work_on() -> None:
    story = tell("half_stopped")
    assert exactly_once(story)
    assert story["live_meanwhile"] == [0, 2, 4, 6, 8]
    for task, departures in story["departures"].items():
        assert (departures > 0) == (int(task) % 2 == 1), "no healthy one was fenced"
    assert story["changes"] <= 3, "and not one for each of the five"
    assert story["meanwhile"] > 5, "the others got new items before the stopped ones had left"
    assert story["joined"] == 10


def test_a_parameter_server_that_dies_ends_the_run_with_an_error_that_names_it() -> None:
    story = tell("server_killed_in_run")
    assert story["message"].startswith("parameter server ps:1 at 127.0.0.1:")
    assert "`fab job train --resume` continues from the last checkpoint" in story["message"]


@pytest.mark.parametrize(
    ("phase", "server"),
    [
        ("both_stopped_in_run", "ps:0"),
        *(
            (f"stopped_{phase}", "ps:1")
            for phase in (
                "in_change",
                "between_probe_and_question",
                "while_connecting",
            )
        ),
    ],
)
def test_a_parameter_server_that_stops_in_any_phase_is_named_and_no_healthy_worker_is_touched(
    phase: str, server: str
) -> None:
    story = tell(f"server_{phase}")
    assert story["message"].startswith(f"parameter server {server} at 127.0.0.1:")
    assert GONE in story["message"]
    assert story["departures"]["1"] == 0


def test_a_parameter_server_that_stops_at_the_end_keeps_nobody_waiting() -> None:
    story = tell("server_stopped_at_the_end")
    assert story["applied"] == 50
    assert story["message"].startswith("parameter server ps:1 at "), (
        "a variable that is freed later is a call, too"
    )


def test_a_parameter_server_that_stops_for_a_moment_costs_that_moment_only() -> None:
    story = tell("server_stopped_for_a_moment")
    assert exactly_once(story)
    assert story["departures"] == {"0": 0, "1": 0}


def test_a_job_that_left_gives_the_parameter_server_its_memory_back() -> None:
    story = tell("left")
    before, first, second = story["memory"]
    assert first - before > 0.8 * story["job"]
    assert second - first < 0.5 * story["job"], (
        "the second job's variables came on top of the first's"
    )
