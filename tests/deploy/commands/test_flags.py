"""The flags of every action, their values, and what becomes of them."""

from typing import Any

import pytest
import yaml

from core.ground.errors import UsageError
from core.inventory import Task
from core.logs.lines import duration
from deploy.cluster.services import select
from deploy.commands.flags import real_number, whole_number, with_overrides
from deploy.commands.jobs import CvFlags, TrainFlags, run_flags
from tests.deploy.tables import Tables

rows = Tables(__file__)

TASKS = (
    Task("ps", 0, "rpi11", "192.168.1.26", 2222, 9200),
    Task("worker", 0, "rpi11", "192.168.1.26", 2223, 9201),
    Task("worker", 1, "rpi12", "192.168.1.27", 2223, 9201),
)


@rows("text")
def test_numbers_are_read_the_ways_people_write_them(text: str) -> None:
    assert whole_number("--samples", text, 1, 10**15) == 10**6
    assert real_number("--share", "0.5", 0, 1) == 0.5


@rows("kind", "text")
def test_what_is_no_number_is_one_line_naming_the_flag(kind: str, text: str) -> None:
    with pytest.raises(UsageError, match=r"--lines: expected a (whole )?number from 0 to 99, got"):
        (whole_number if kind == "whole" else real_number)("--lines", text, 0, 99)


def test_flags_become_overrides_and_absent_ones_do_not() -> None:
    given = TrainFlags(model="residual", refit=True, epochs=3, seed=0, set_=("jobs.pi.seed=4",))
    assert set(with_overrides(given).set_[:-1]) == {
        'jobs.train.model.name="residual"',
        "jobs.train.refit=true",
        "jobs.train.epochs=3",
        "jobs.train.seed=0",
    }
    assert with_overrides(given).set_[-1] == "jobs.pi.seed=4", "what --set says comes last"
    assert with_overrides(TrainFlags()).set_ == ()


@rows("given", "made")
def test_folds_and_seeds_are_numbers_groups_or_lists(
    given: dict[str, str], made: list[str]
) -> None:
    flags = {flag.attribute: flag for flag in CvFlags.declared()}
    values: dict[str, Any] = {
        name: flags[name].read(f"--{name}", text)  # type: ignore[misc]
        for name, text in given.items()
    }
    assert [*with_overrides(CvFlags(**values)).set_] == made


def test_what_concerns_one_run_alone_is_passed_on_to_the_coordinator() -> None:
    assert run_flags(TrainFlags()) == []
    assert run_flags(TrainFlags(resume=True)) == ["--resume"]
    assert run_flags(TrainFlags(resume=True, run="runs/one")) == ["--resume", "runs/one"]
    with pytest.raises(UsageError, match="--run: names the training run for --resume"):
        run_flags(TrainFlags(run="runs/one"))


def test_a_path_with_yaml_in_it_stays_a_path() -> None:
    path = "/data/a: b #c 'd' \"e\" [f] é"
    (override,) = with_overrides(TrainFlags(data=path)).set_
    assert yaml.safe_load(override.removeprefix("jobs.train.data.source=")) == path


@rows("roles", "nodes", "names")
def test_roles_are_selected_by_role_task_and_node(
    roles: list[str], nodes: list[str], names: list[str]
) -> None:
    assert [task.name for task in select(TASKS, roles, nodes)] == names


@rows("roles", "nodes", "message")
def test_names_that_match_nothing_say_what_there_is(
    roles: list[str], nodes: list[str], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        select(TASKS, roles, nodes)


@rows("seconds", "words")
def test_durations_in_two_units(seconds: float | None, words: str) -> None:
    assert duration(seconds) == words
