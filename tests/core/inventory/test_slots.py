"""What `auto` comes to, for clusters that there are."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.inventory import Task
from core.inventory.slots import MOST_SLOTS, auto_slots, cores_of_workers, without_part
from core.inventory.training import TrainJob
from tests.tables import table

PIS = [4] * 16


def workers(*nodes: str) -> list[Task]:
    return [Task("worker", index, node, node, 2223, 9201) for index, node in enumerate(nodes)]


CASES = table("core/inventory/slots")
WHOLE = ("async", "ssp", "local")
SHARED = ("sync", "allreduce")


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, cases in CASES.items() for name in cases]
)
def test_auto_is_one_a_core_or_for_a_shared_step_a_power_of_two(kind: str, name: str) -> None:
    case = CASES[kind][name]
    cores = [*Counter(case["cores"]).elements()]
    for mode in {"whole": WHOLE, "shared": SHARED}[kind]:
        found = auto_slots(mode, case["batch"], case["workers"], cores)
        assert found.number == case["number"], mode


@pytest.mark.parametrize(
    ("batch", "batch_norm", "number"), table("core/inventory/tables", "slots of the library")
)
def test_the_library_s_slots_follow_the_recipe_alone(
    batch: int, batch_norm: bool, number: int
) -> None:
    model = {"name": "thesis", "batch_norm": batch_norm}
    for mode in (*WHOLE, *SHARED, "single", "mirrored"):
        job = TrainJob.model_validate({"mode": mode, "batch_size": batch, "model": model})
        for count, cores in ((1, [1]), (16, PIS), (100, [])):
            assert job.auto_slots(count, cores, own_model=False).number == number


@settings(deadline=None)
@given(
    mode=st.sampled_from([*WHOLE, *SHARED, "single", "mirrored"]),
    batch_size=st.integers(1, 65_536),
    count=st.integers(1, 1000),
    cores=st.sampled_from([0, 1, 4, 256]),
)
def test_any_batch_can_be_cut_into_it(mode: str, batch_size: int, count: int, cores: int) -> None:
    found = auto_slots(mode, batch_size, count, [cores] * count if cores else [])
    assert 1 <= found.number <= min(MOST_SLOTS, batch_size)
    job = {"batch_size": batch_size, "slots": found.number}
    assert TrainJob.model_validate(job).pieces
    assert found.why


@pytest.mark.parametrize(
    ("mode", "count", "cores", "why"), table("core/inventory/tables", "reasons of slots")
)
def test_why_names_the_cores_or_the_workers(
    mode: str, count: int, cores: list[int], why: str
) -> None:
    assert auto_slots(mode, 100, count, cores).why == why


def test_workers_of_one_node_share_its_cores() -> None:
    assert cores_of_workers(workers("a", "a", "b", "c"), {"a": 8, "b": 4}) == [4, 4, 4]
    assert cores_of_workers(workers("a", "a", "a"), {"a": 2}) == [1, 1, 1]


def test_a_job_that_is_still_auto_has_no_number() -> None:
    job = TrainJob()
    assert job.slots == "auto"
    with pytest.raises(ValueError, match="got auto"):
        job.pieces  # noqa: B018
    assert job.cut_into(4).pieces == 4


@pytest.mark.parametrize(
    ("mode", "number", "workers", "words"), table("core/inventory/tables", "without a part")
)
def test_workers_without_a_part_of_a_step_are_named(
    mode: str, number: int, workers: int, words: list[str]
) -> None:
    said = without_part(mode, number, workers)
    assert bool(said) == bool(words)
    assert all(word in said for word in words)
