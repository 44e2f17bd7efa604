from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cluster.pages.files import OVER, RunRecord, SweepRecord, read_sweep
from cluster.sweeps.plan import MOST_ENDINGS, MOST_STRIKES, RunExit, Schedule
from cluster.sweeps.progress import csv_of

KILLED = RunExit(None, "ended with signal 9")
HUNG_UP = RunExit(None, "ended with signal 1", lost=True)


def done(accuracy: float = 0.5) -> RunExit:
    return RunExit(
        {"status": "done", "final": {"accuracy": accuracy, "loss": None, "words": "none"}}, ""
    )


def record(count: int = 3) -> SweepRecord:
    runs = tuple(RunRecord(f"{at:04d}", {"jobs.train.epochs": at}, 0) for at in range(1, count + 1))
    return SweepRecord("s", "x-sweep", "running", "node", (0,), (), runs)


def states(schedule: Schedule) -> list[str]:
    return [run.state for run in schedule.record.runs]


def taken(schedule: Schedule, node: str, *there: str) -> str | None:
    """The id of the run that this node gets."""
    run = schedule.lease_next(node, there)
    if run is None:
        return None
    return run.id


def leased(schedule: Schedule, node: str) -> RunRecord | None:
    """The run that the node has."""
    running = (run for run in schedule.record.runs if run.state == "running")
    return next((run for run in running if run.node == node), None)


def end(schedule: Schedule, node: str, ending: RunExit) -> RunRecord:
    """The run of that node ends so, after a second."""
    return schedule.ended(node, ending, 1.0, None)


BOTH = ("worker:0", "worker:1")


def test_each_free_node_gets_the_next_run_until_none_waits() -> None:
    schedule = Schedule(record(3))
    assert [taken(schedule, node) for node in BOTH] == ["0001", "0002"]
    assert states(schedule) == ["running", "running", "waiting"]
    finished = schedule.ended("worker:1", done(), 2.5, "runs/0002/x-train")
    assert (finished.state, finished.seconds) == ("finished", 2.5)
    assert finished.final == {"accuracy": 0.5, "loss": None}
    assert taken(schedule, "worker:1") == "0003"
    assert leased(schedule, "worker:0") is not None
    for node in BOTH:
        end(schedule, node, done())
    assert not schedule.open
    assert taken(schedule, "worker:0") is None


def test_a_killed_run_goes_on_where_it_began_and_fails_in_the_end() -> None:
    schedule = Schedule(record(1))
    found = []
    for _ in range(MOST_ENDINGS):
        assert taken(schedule, "worker:0", "worker:0") == "0001"
        found.append(end(schedule, "worker:0", KILLED))
    assert [run.state for run in found] == ["waiting"] * (MOST_ENDINGS - 1) + ["failed"]
    assert [run.seconds for run in found] == [*range(1, MOST_ENDINGS + 1)]
    assert f"ended {MOST_ENDINGS} times" in str(found[-1].error)
    assert not schedule.open


FORGED = {"accuracy": 1e999, "\ud800": 1, "x" * 999: 1, "huge": 10**400, "=1": 1, "loss": 0.5}


def test_what_a_node_says_of_a_run_is_written_shown_and_read_back(tmp_path: Path) -> None:
    schedule = Schedule(record(2))
    forged = {**FORGED, **{f"f{at}": at for at in range(999)}}
    for result in (
        {"status": "done", "final": forged, "selected": FORGED},
        {"status": "failed", "reason": "\ud800\x1b[2J\nrun 0002 finished" * 999},
    ):
        taken(schedule, "worker:0")
        end(schedule, "worker:0", RunExit(result, ""))
    schedule.record.write(tmp_path)
    assert read_sweep(tmp_path) == schedule.record
    assert read_sweep(tmp_path).runs[1].state == "failed"
    assert "\n" not in str(schedule.record.runs[1].error)
    assert b",'=1_mean," in csv_of(schedule.record).encode()


def test_a_run_of_a_lost_node_goes_elsewhere_and_that_counts_for_nothing() -> None:
    schedule = Schedule(record(1))
    for _ in range(2 * MOST_ENDINGS):
        taken(schedule, "worker:0")
        assert end(schedule, "worker:0", HUNG_UP).node is None
    assert taken(schedule, "worker:1", "worker:1") == "0001"
    assert schedule.record.runs[0].node == "worker:1"


def test_an_interrupted_run_waits_for_its_own_node_while_that_is_there() -> None:
    schedule = Schedule(record(2))
    taken(schedule, "worker:0")
    end(schedule, "worker:0", KILLED)
    assert taken(schedule, "worker:1", *BOTH) == "0002"
    assert taken(schedule, "worker:0", *BOTH) == "0001"
    end(schedule, "worker:0", KILLED)
    schedule.gone("worker:0")
    end(schedule, "worker:1", done())
    assert taken(schedule, "worker:1", "worker:1") == "0001"


def test_a_node_that_only_loses_runs_gets_no_more_unless_it_is_the_last() -> None:
    schedule = Schedule(record(10))
    for _ in range(MOST_STRIKES):
        taken(schedule, "worker:0", "worker:0")
        end(schedule, "worker:0", KILLED)
    aside = [schedule.is_set_aside(*asked) for asked in (("worker:0", 2), ("worker:0", 1))]
    assert aside == [True, False]
    assert not schedule.is_set_aside("worker:1", 2)


ENDINGS: Mapping[str, Any] = {
    "done": done(),
    "killed": KILLED,
    "lost": HUNG_UP,
    "asked": RunExit(None, "", ended_by_us=True),
}


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.sampled_from([*ENDINGS])), max_size=60)
)
def test_no_run_is_ever_with_two_nodes_and_none_that_is_over_runs_again(
    steps: list[tuple[str, str]],
) -> None:
    schedule = Schedule(record(4))
    finished = set[str]()
    for node, kind in steps:
        if leased(schedule, node) is None:
            assert taken(schedule, node, *"abc") not in finished
        else:
            run = end(schedule, node, ENDINGS[kind])
            if run.state in OVER:
                finished.add(run.id)
        with_node = [found.id for one in "abc" if (found := leased(schedule, one))]
        assert len(with_node) == len(set(with_node)) == states(schedule).count("running")
