import ast
import inspect
import textwrap

import pytest

from cluster.errors import UsageError
from cluster.inventory.task import Task
from deploy.cluster.selection import select
from deploy.commands.actions import ACTIONS
from deploy.commands.apps import APP_ACTIONS
from deploy.commands.edge import flags_of
from deploy.commands.flags import FLAGS, Flags, whole_number
from deploy.commands.init import init
from deploy.commands.jobs import JOB_ACTIONS, OF_CV, OF_DATA, OF_TRAIN, report, run_flags, with_overrides
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
    given = Flags(model="residual", refit=True, epochs="3", set_=("jobs.train.seed=4",))
    assert with_overrides(given, OF_TRAIN).set_ == (
        'jobs.train.model.name="residual"',
        "jobs.train.refit=true",
        "jobs.train.epochs=3",
        "jobs.train.seed=4",
    )
    assert with_overrides(Flags(), OF_TRAIN) == Flags()
    with pytest.raises(UsageError, match=r"--seed: expected a whole number from 0 to"):
        with_overrides(Flags(seed="x"), OF_TRAIN)


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ({"folds": "5", "seeds": "3"}, ("jobs.cv.folds=5", "jobs.cv.seeds=3")),
        ({"folds": "groups", "seeds": "0,3, 7"}, ('jobs.cv.folds="groups"', "jobs.cv.seeds=[0, 3, 7]")),
        ({"seeds": "4,"}, ("jobs.cv.seeds=[4]",)),
    ],
)
def test_folds_and_seeds_are_numbers_groups_or_lists(given: dict[str, str], made: tuple[str, ...]) -> None:
    assert with_overrides(Flags(**given), OF_CV).set_ == made  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [{"folds": "each"}, {"seeds": "0,x"}, {"seeds": "-1"}])
def test_other_folds_and_seeds_name_their_flag(given: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=f"--{next(iter(given))}: expected a whole number"):
        with_overrides(Flags(**given), OF_CV)  # type: ignore[arg-type]


def test_what_concerns_one_run_alone_is_passed_on_to_the_coordinator() -> None:
    assert run_flags(Flags()) == []
    assert run_flags(Flags(resume=True, chaos="kill-worker:0.1")) == ["--resume", "--chaos", "kill-worker:0.1"]
    assert run_flags(Flags(resume=True, run="runs/one")) == ["--resume", "runs/one"]


def test_a_path_with_yaml_in_it_stays_a_path() -> None:
    import yaml

    path = "/data/a: b #c 'd' \"e\" [f] é"
    (override,) = with_overrides(Flags(data=path), OF_DATA).set_
    assert yaml.safe_load(override.removeprefix("jobs.train.data.source=")) == path


def test_a_command_reads_no_flag_that_it_does_not_take() -> None:
    for body in (*ACTIONS, *JOB_ACTIONS, *APP_ACTIONS, init, report):
        tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(body))))
        read = {
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "flags" and node.attr in FLAGS
        }
        assert read <= {one.name for one in flags_of(body)}, body.__name__


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
