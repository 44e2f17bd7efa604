import pytest

from cluster.errors import UsageError
from cluster.inventory.task import Task
from deploy.cluster.selection import select
from deploy.commands.flags import whole_number
from deploy.commands.jobs import data_settings, number_settings, run_flags, settings
from deploy.terminal.console import duration, megabytes

TASKS = (
    Task("ps", 0, "rpi11", "192.168.1.26", 2222, 9200),
    Task("worker", 0, "rpi11", "192.168.1.26", 2223, 9201),
    Task("worker", 1, "rpi12", "192.168.1.27", 2223, 9201),
)


@pytest.mark.parametrize("text", ["1000000", "1_000_000", "1e6", " 1000000 "])
def test_numbers_are_read_the_ways_people_write_them(text: str) -> None:
    assert whole_number("--samples", text, 1, 10**15) == 10**6


@pytest.mark.parametrize("text", ["", "x", "1.5", "nan", "inf", "-1", "1e30", "0x10", "१.५"])
def test_what_is_no_number_is_one_line_naming_the_flag(text: str) -> None:
    with pytest.raises(UsageError, match=r"--lines: expected a whole number from 0 to 99, got"):
        whole_number("--lines", text, 0, 99)


def test_flags_become_overrides_and_absent_ones_do_not() -> None:
    keys = {"jobs.train.model.name": "residual", "jobs.train.mode": None, "jobs.train.refit": True, "other": False}
    assert settings(keys) == ['jobs.train.model.name="residual"', "jobs.train.refit=true"]
    assert number_settings({"jobs.train.epochs": ("--epochs", "3"), "jobs.train.seed": ("--seed", None)}) == [
        "jobs.train.epochs=3"
    ]


def test_what_concerns_one_run_alone_is_passed_on_to_the_coordinator() -> None:
    assert run_flags(False, None, None) == []
    assert run_flags(True, None, "kill-worker:0.1") == ["--resume", "--chaos", "kill-worker:0.1"]
    assert run_flags(True, "runs/one", None) == ["--resume", "runs/one"]


def test_a_path_with_yaml_in_it_stays_a_path() -> None:
    import yaml

    path = "/data/a: b #c 'd' \"e\" [f] é"
    assert data_settings(None) == []
    (override,) = data_settings(path)
    assert yaml.safe_load(override.removeprefix("jobs.train.data.source=")) == path


@pytest.mark.parametrize(
    ("roles", "nodes", "names"),
    [
        ([], [], ["ps:0", "worker:0", "worker:1"]),
        (["worker"], [], ["worker:0", "worker:1"]),
        (["worker:1", "ps"], [], ["ps:0", "worker:1"]),
        (["worker"], ["rpi11"], ["worker:0"]),
        ([], ["rpi12"], ["worker:1"]),
    ],
)
def test_roles_are_selected_by_role_task_and_node(roles: list[str], nodes: list[str], names: list[str]) -> None:
    assert [task.name for task in select(TASKS, roles, nodes)] == names


@pytest.mark.parametrize(
    ("roles", "nodes", "message"),
    [
        (["worker:7"], [], "--role worker:7: expected one of ps, worker, ps:0, worker:0, worker:1"),
        ([], ["rpi99"], "--node rpi99: expected one of rpi11, rpi12"),
        (["ps"], ["rpi12"], "no ps on rpi12"),
    ],
)
def test_names_that_match_nothing_say_what_there_is(roles: list[str], nodes: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        select(TASKS, roles, nodes)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(None, "-"), (0.9, "0 s"), (59.9, "59 s"), (185, "3 min 05 s"), (7620, "2 h 07 min"), (273_600, "3 d 04 h")],
)
def test_durations_in_two_units(seconds: float | None, words: str) -> None:
    assert duration(seconds) == words


def test_memory_in_megabytes() -> None:
    assert megabytes(84_400_000) == "84 MB"
    assert megabytes(None) == "-"
