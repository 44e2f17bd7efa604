from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cluster.sweeps.record import OVER, RunRecord, SweepRecord
from cluster.sweeps.schedule import MOST_ENDINGS, MOST_STRIKES, Ending, Schedule

KILLED = Ending(None, "ended with signal 9")
HUNG_UP = Ending(None, "ended with signal 1", lost=True)


def done(accuracy: float = 0.5) -> Ending:
    return Ending({"status": "done", "final": {"accuracy": accuracy, "loss": None, "words": "none"}}, "")


def record(count: int = 3) -> SweepRecord:
    runs = tuple(RunRecord(f"{at:04d}", {"jobs.train.epochs": at}, 0) for at in range(1, count + 1))
    return SweepRecord("s", "x-sweep", "running", "node", (0,), (), None, runs)


def states(schedule: Schedule) -> list[str]:
    return [run.state for run in schedule.record.runs]


def test_each_free_node_gets_the_next_run_until_none_waits() -> None:
    schedule = Schedule(record(3))
    taken = [schedule.take(node) for node in ("worker:0", "worker:1")]
    assert [run.id for run in taken if run] == ["0001", "0002"]
    assert states(schedule) == ["running", "running", "waiting"]
    finished = schedule.ended("worker:1", done(), 2.5, "runs/0002/x-train")
    assert (finished.state, finished.final, finished.seconds) == ("finished", {"accuracy": 0.5, "loss": None}, 2.5)
    again = schedule.take("worker:1")
    assert again is not None
    assert again.id == "0003"
    assert schedule.leased("worker:0") is not None
    schedule.ended("worker:0", done(), 1.0, None)
    schedule.ended("worker:1", done(), 1.0, None)
    assert not schedule.open
    assert schedule.take("worker:0") is None


def test_a_killed_run_goes_on_where_it_began_and_fails_in_the_end() -> None:
    schedule = Schedule(record(1))
    for count in range(1, MOST_ENDINGS + 1):
        run = schedule.take("worker:0", ["worker:0"])
        assert run is not None
        ended = schedule.ended("worker:0", KILLED, 1.0, None)
        assert ended.state == ("waiting" if count < MOST_ENDINGS else "failed")
        assert ended.seconds == count
    assert ended.error is not None
    assert f"ended {MOST_ENDINGS} times" in ended.error
    assert not schedule.open


def test_a_run_that_failed_by_itself_or_refused_its_settings_is_not_tried_again() -> None:
    for ending, why in (
        (Ending({"status": "failed", "reason": "it diverged"}, "ended with exit code 1"), "it diverged"),
        (Ending(None, "ended with exit code 2: no such file", hopeless=True), "ended with exit code 2: no such file"),
    ):
        schedule = Schedule(record(1))
        schedule.take("worker:0")
        assert (schedule.ended("worker:0", ending, 1.0, None).state, schedule.record.runs[0].error) == ("failed", why)


def test_a_run_of_a_lost_node_goes_elsewhere_and_that_counts_for_nothing() -> None:
    schedule = Schedule(record(1))
    for _ in range(2 * MOST_ENDINGS):
        schedule.take("worker:0")
        assert schedule.ended("worker:0", HUNG_UP, 1.0, None).node is None
    taken = schedule.take("worker:1", ["worker:1"])
    assert taken is not None
    assert taken.node == "worker:1"


def test_an_interrupted_run_waits_for_its_own_node_while_that_is_there() -> None:
    schedule = Schedule(record(2))
    schedule.take("worker:0")
    schedule.ended("worker:0", KILLED, 1.0, None)
    both = ["worker:0", "worker:1"]
    other = schedule.take("worker:1", both)
    own = schedule.take("worker:0", both)
    assert (other and other.id, own and own.id) == ("0002", "0001")
    schedule.ended("worker:0", KILLED, 1.0, None)
    schedule.gone("worker:0")
    schedule.ended("worker:1", done(), 1.0, None)
    moved = schedule.take("worker:1", ["worker:1"])
    assert moved is not None
    assert moved.id == "0001"


def test_a_run_that_the_search_ends_early_is_over() -> None:
    schedule = Schedule(record(3))
    for node in ("a", "b", "c"):
        schedule.take(node)
    pruned = schedule.pruned("c", 2.0, "ended early after epoch 1")
    assert (pruned.id, pruned.state, pruned.seconds, pruned.final) == ("0003", "pruned", 2.0, None)
    assert schedule.leased("c") is None
    assert schedule.take("c") is None


def test_a_node_that_only_loses_runs_gets_no_more_unless_it_is_the_last() -> None:
    schedule = Schedule(record(10))
    for _ in range(MOST_STRIKES):
        schedule.take("worker:0", ["worker:0"])
        schedule.ended("worker:0", KILLED, 0.1, None)
    assert schedule.is_set_aside("worker:0", 2)
    assert not schedule.is_set_aside("worker:0", 1)
    assert not schedule.is_set_aside("worker:1", 2)


def test_a_driver_that_died_left_runs_that_wait() -> None:
    before = Schedule(record(2))
    before.take("worker:0")
    before.take("worker:1")
    before.ended("worker:1", done(), 1.0, None)
    after = Schedule(before.record)
    assert states(after) == ["waiting", "finished"]
    taken = after.take("worker:0", ["worker:0"])
    assert taken is not None
    assert taken.id == "0001"


ENDINGS: Mapping[str, Any] = {"done": done(), "killed": KILLED, "lost": HUNG_UP, "asked": Ending(None, "", asked=True)}


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.sampled_from([*ENDINGS])), max_size=60))
def test_no_run_is_ever_with_two_nodes_and_none_that_is_over_runs_again(steps: list[tuple[str, str]]) -> None:
    schedule, finished = Schedule(record(4)), set[str]()
    for node, kind in steps:
        if schedule.leased(node) is None:
            taken = schedule.take(node, ["a", "b", "c"])
            assert taken is None or taken.id not in finished
        else:
            run = schedule.ended(node, ENDINGS[kind], 1.0, None)
            if run.state in OVER:
                finished.add(run.id)
        leased = [found.id for one in "abc" if (found := schedule.leased(one))]
        assert len(leased) == len(set(leased)) == states(schedule).count("running")
