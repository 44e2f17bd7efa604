"""The bits of a gradient follow from the recipe, not from processors, threads or workers."""

import functools
from typing import Any

import numpy as np
import pytest

from core.consistency import tree_sum
from kernels.library import UnfitProgramError, loaded, operations
from tests.kernels.calls import CASES
from tests.kernels.networks import CLASSES, MODELS, SLOTS, Case, bytes_of, kinds_of_this_processor


@pytest.fixture(params=CASES, ids=list(MODELS))
def case(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_each_kind_of_processor_and_any_number_of_threads(case: Case) -> None:
    expected = bytes_of(case.sums(kind="scalar"))
    assert loaded().kind in kinds_of_this_processor()
    for kind in kinds_of_this_processor():
        for threads in (1, 2, 5):
            assert bytes_of(case.sums(kind=kind, threads=threads)) == expected, (kind, threads)


def test_a_proof_is_the_same_on_each_kind_of_processor() -> None:
    proof = operations().pscluster_proof().numpy()
    assert proof[0] == loaded().version
    for kind in kinds_of_this_processor():
        assert np.array_equal(loaded().proof(kind), proof)
    with pytest.raises(UnfitProgramError, match="this kind does not run here"):
        loaded().proof("abacus")


def test_each_worker_may_have_any_slots(case: Case) -> None:
    """A range that is no subtree has a node for each of its subtrees."""
    whole = case.sums()
    group = case.recipe.group
    ranges = [case.sums((0, group)), case.sums((group, SLOTS - group))]
    nodes = np.concatenate([each.nodes for each in ranges])
    assert functools.reduce(np.add, nodes).tobytes() == whole.nodes.tobytes()
    for part in ("losses", "hits", "logits"):
        of_slots = [getattr(each, part) for each in ranges]
        assert np.concatenate(of_slots).tobytes() == getattr(whole, part).tobytes()


def test_slots_apart_add_up_to_the_tree(case: Case) -> None:
    apart = case.sums(apart=True)
    whole = case.sums()
    assert np.array_equal(tree_sum([*apart.nodes], np.add), whole.nodes[0])
    assert apart.losses.tobytes() == whole.losses.tobytes()


def test_answers_have_the_same_bits_too(case: Case) -> None:
    expected = case.sums(kind="scalar").logits
    assert np.isfinite(expected).all()
    found = operations().pscluster_logits(
        program=case.written.words,
        constants=case.written.constants,
        trained=case.vector[0],
        statistics=case.vector[1],
        windows=case.batch.windows[:3],
        settings=[1, CLASSES],
    )
    assert found.numpy().tobytes() == expected[:3].tobytes()
