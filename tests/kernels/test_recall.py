"""What follows from a window alone is computed once, and has the same bits each time."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from core.ground.lazy import tf
from core.models.native import NativeNetwork, RowsOfSet, SlotsOfBatch
from kernels.library import Floats, loaded, operations
from kernels.writing import KernelOperations
from tests.kernels.networks import SLOTS, WINDOWS, Case

CASES = [Case("spectral"), Case("hybrid")]
ROWS = np.random.default_rng(4).permutation(2 * WINDOWS)[:WINDOWS].astype(np.int32)
TOTAL = 2 * WINDOWS


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Iterator[Any]:
    loaded().give_back()
    yield request.param
    loaded().give_back()


def gradient(case: Case, rows: RowsOfSet | None, windows: Floats | None = None) -> bytes:
    """Return all bits of the gradient of the case's batch, or of other windows."""
    recipe = case.recipe
    seed = tf.constant(recipe.seed)
    cut = SlotsOfBatch(recipe.batch_size, recipe.slots, 0, SLOTS, seed)
    batch = case.batch
    labelled = (batch.windows if windows is None else windows, batch.labels)
    native = NativeNetwork(case.network)
    sums = native.gradient(case.vector, labelled, batch.weights, cut, recipe.smoothing, rows=rows)
    logits = native.answers(*case.vector, labelled[0], rows)
    parts = (*sums.nodes, sums.losses, sums.hits, logits)
    return b"".join(part.numpy().tobytes() for part in parts)


def test_a_gradient_and_answers_have_the_bits_of_the_whole_program(case: Case) -> None:
    expected = gradient(case, None)
    for first in (0, 1, 0):  # of no row, of all but one, and of every row there is a result
        rows = ROWS.copy()
        rows[:first] = np.setdiff1d(np.arange(TOTAL), ROWS)[:first]
        assert gradient(case, RowsOfSet(rows, [1, 2], TOTAL)) == expected


def measured(
    case: Case, windows: Floats, rows: Any = ROWS, source: Any = (1, 2), total: int = TOTAL
) -> Floats:
    """Call the operation alone."""
    measuring = case.network.measuring
    program = KernelOperations(measuring).written()
    found: Floats = (
        operations()
        .pscluster_recalled(
            program=program.words,
            constants=program.constants,
            trained=[],
            statistics=case.vector[1],
            windows=windows,
            rows=rows,
            source=source,
            settings=[2, measuring.problem.outputs, total],
        )
        .numpy()
    )
    return found


def test_rows_of_the_latest_source_are_not_computed_again(case: Case) -> None:
    windows = case.batch.windows
    other = windows[::-1] + np.float32(1.0)
    first = measured(case, windows)
    assert np.isfinite(first).all()
    assert measured(case, other).tobytes() == first.tobytes()
    of_other = measured(case, other, source=(1, 3))
    assert (of_other != first).any(axis=1).all()
    loaded().give_back()
    assert measured(case, other).tobytes() == of_other.tobytes()
    doubled = np.full_like(ROWS, ROWS[3])  # of rows that come twice the first is kept
    assert measured(case, windows, doubled).tobytes() == of_other[[3] * WINDOWS].tobytes()


def test_a_set_with_more_rows_than_there_is_memory_for(case: Case) -> None:
    windows = case.batch.windows
    other = windows + np.float32(1.0)
    floats = case.network.measuring.problem.outputs
    places = (2**25 // 4 - (total := 2**23 - 10 * floats)) // floats
    assert places == 10
    first = measured(case, windows, total=total)
    again = measured(case, other, total=total)
    same = (first == again).all(axis=1)
    assert same.tolist() == [True] * 10 + [False] * (WINDOWS - 10)
    assert again[10:].tobytes() == measured(case, other, source=(9,))[10:].tobytes()
    none = measured(case, windows, total=2**23)
    assert none.tobytes() == first.tobytes()


@pytest.mark.parametrize(
    ("reason", "rows"),
    [("no such row", [-1]), ("no such row", [TOTAL]), ("expected one a window", [0, 1])],
)
def test_rows_that_do_not_fit(reason: str, rows: list[int]) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=reason):
        measured(CASES[0], CASES[0].batch.windows[:1], rows)
