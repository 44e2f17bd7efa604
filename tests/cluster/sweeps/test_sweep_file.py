from itertools import pairwise
from pathlib import Path

import pytest

from cluster.sweeps.plan import (
    base_overrides,
    fingerprint,
    overrides_of,
    planned_runs,
    refuse_unusable,
)
from cluster.sweeps.sweep_file import (
    MOST_RUNS,
    SweepError,
    SweepFile,
    axes_of,
    read_sweep_file,
    read_text,
)
from core.documents.yaml_document import MAXIMUM_BYTES
from core.inventory import load
from core.inventory.templates import local_inventory
from deploy.common.project import ROOT
from tests.tables import table

GRID = """
name: widths
base: {jobs.train.epochs: 2}
grid:
  jobs.train.model.hidden: [8, 16]
  jobs.train.batch_size: [50, 100]
seeds: [1, 2]
"""


BOMB = "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in pairwise("abcdefg")
)
"""Aliases that stand for two million values."""


def problems(text: str) -> list[str]:
    with pytest.raises(SweepError) as raised:
        read_text(text, "s.yaml")
    return str(raised.value).splitlines()


def refused(text: str, tmp_path: Path, *given: str) -> list[str]:
    path = tmp_path / "inventory.yaml"
    path.write_text(local_inventory(2, 1))
    with pytest.raises(SweepError) as raised:
        refuse_unusable(read_text(text, "s.yaml"), given, lambda overrides: load(path, overrides))
    return str(raised.value).splitlines()


def made(sweep: SweepFile) -> list[tuple[str, dict[str, object], int]]:
    return [(run.id, dict(run.settings), run.seed) for run in planned_runs(sweep)]


def test_a_grid_is_every_combination_and_every_seed_of_each() -> None:
    sweep = read_text(GRID, "s.yaml")
    runs = made(sweep)
    assert len(runs) == sweep.run_count == 8
    first = {"jobs.train.model.hidden": 8, "jobs.train.batch_size": 50}
    last = {"jobs.train.model.hidden": 16, "jobs.train.batch_size": 100}
    assert runs[:2] == [("0001", first, 1), ("0002", first, 2)]
    assert runs[-1] == ("0008", last, 2)
    assert [
        (axis.key, axis.values) for axis in axes_of([choice.settings for choice in sweep.choices])
    ] == [
        ("jobs.train.model.hidden", (8, 16)),
        ("jobs.train.batch_size", (50, 100)),
    ]


def test_a_list_has_its_own_settings_and_one_seed_unless_it_says_more() -> None:
    sweep = read_text(
        "runs: [{jobs.train.epochs: 1}, {}, {jobs.train.model: {name: dblstm}}]", "s.yaml", "a b"
    )
    listed = table("cluster/sweeps/rows", "listed")
    assert [[*run[1:]] for run in made(sweep)] == listed["runs"]
    assert (sweep.name, sweep.placement) == ("a-b", "node")
    assert {
        axis.key: len(axis.values)
        for axis in axes_of([choice.settings for choice in sweep.choices])
    } == listed["axes"]


def test_the_overrides_of_a_run_are_what_set_takes() -> None:
    sweep = read_text(GRID, "s.yaml")
    base = base_overrides(sweep, ["jobs.train.epochs=1"])
    first = planned_runs(sweep)[0]
    found = overrides_of(base, "node", first.settings, first.seed)
    assert [*found] == table("cluster/sweeps/rows", "overrides")
    assert 'jobs.train.mode="single"' not in overrides_of(
        base, "cluster", first.settings, first.seed
    )


MISTAKES = table("cluster/sweeps/mistakes")
LARGE = [
    (
        f"runs: [{{}}]\nseeds: [{', '.join(map(str, range(MOST_RUNS + 1)))}]",
        f"at most {MOST_RUNS} are possible",
    ),
    (
        f"grid: {{jobs.train.epochs: {[*range(1, 52)]}, jobs.train.model.hidden: {[*range(40)]}}}",
        f"2040 runs, at most {MOST_RUNS} are possible - divide it into several sweeps",
    ),
    ("a: &a [1, 1, 1, 1]\n" + BOMB + "runs: [*g]", "more than 20000 values"),
    (f"base: {'{a: ' * 200}1{'}' * 200}", "nested more than 24 levels"),
]


@pytest.mark.parametrize(
    ("text", "expected"), [*((one["file"], one["says"]) for one in MISTAKES), *LARGE]
)
def test_a_mistake_is_named_with_its_place_and_a_remedy(text: str, expected: str) -> None:
    assert expected in "\n".join(problems(text))


def test_a_file_that_is_no_yaml_is_one_line() -> None:
    assert len(problems("# Title\n\nSome words: and more: words\n")) == 1


def test_every_mistake_is_named_at_once() -> None:
    found = problems("nam: x\nbase: {jobs.train.seed: 3}\ngrid: {}\nseeds: []\nplacement: 3")
    assert [line.split(":")[1] for line in found] == ["1", "2", "3", "4", "5"]


def test_a_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "long.yaml").write_bytes(b"#" * (MAXIMUM_BYTES + 1))
    (tmp_path / "latin.yaml").write_bytes("näme: 3".encode("latin-1"))
    for path, expected in table("cluster/sweeps/rows", "no file").items():
        with pytest.raises(SweepError, match=expected):
            read_sweep_file(tmp_path / path)


def test_the_inventory_s_own_schema_checks_each_setting_where_the_sweep_says_it(
    tmp_path: Path,
) -> None:
    text = """
base:
  jobs.train.epohs: 2
grid:
  jobs.train.model.hidden: [8, 1000]
  jobs.train.optimizer: [{name: adam}, {name: adam, learning_rat: 1.0}]
"""
    found = refused(text, tmp_path)
    assert found[0] == "s.yaml:3: base.jobs.train.epohs: 2: unknown key - did you mean `epochs`?"
    assert found[1].startswith("s.yaml:5: grid.jobs.train.model.hidden.1: 1000: out of range")
    assert "s.yaml:6: grid.jobs.train.optimizer.1" in found[2]
    assert "did you mean `learning_rate`?" in found[2]


def test_what_the_placement_or_set_decides_is_refused(tmp_path: Path) -> None:
    for text, given, said in table("cluster/sweeps/rows", "decided elsewhere"):
        (line,) = refused(text, tmp_path, *given)
        assert said in line
    path = tmp_path / "inventory.yaml"
    cluster = "placement: cluster\nruns: [{jobs.train.mode: sync}]"
    refuse_unusable(read_text(cluster, "s.yaml"), (), lambda overrides: load(path, overrides))


@pytest.mark.parametrize(
    ("text", "expected"),
    table("cluster/sweeps/rows", "the same twice"),
)
def test_what_trains_the_same_twice_and_what_is_no_number_is_refused(
    text: str, expected: str, tmp_path: Path
) -> None:
    (line,) = refused(text, tmp_path)
    assert line.startswith(expected)


@pytest.mark.parametrize(
    "path", sorted((ROOT / "sweeps").glob("*.yaml")), ids=lambda path: path.name
)
def test_the_sweeps_of_the_project_can_be_run(path: Path, tmp_path: Path) -> None:
    inventory = tmp_path / "inventory.yaml"
    inventory.write_text(local_inventory(2, 1))
    sweep = read_sweep_file(path)
    assert sweep.run_count
    refuse_unusable(sweep, (), lambda overrides: load(inventory, overrides, check_interfaces=False))


def test_the_fingerprint_is_of_the_runs_and_not_of_the_words() -> None:
    same = GRID.replace("name: widths", "name: other # with a remark")
    assert fingerprint(read_text(GRID, "a")) == fingerprint(read_text(same, "b"))
    for old, new in table("cluster/sweeps/rows", "other runs").items():
        assert fingerprint(read_text(GRID, "a")) != fingerprint(
            read_text(GRID.replace(old, new), "a")
        )
