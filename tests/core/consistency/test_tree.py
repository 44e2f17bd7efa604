"""The fixed tree: whoever adds which subtree, the additions are the same."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.consistency import largest_subtree, subtree_sizes, tree_sum
from tests.tables import table


def written(a: str, b: str) -> str:
    """An addition that remembers how it was made, and is not associative for that."""
    return f"({a}+{b})"


def leaves(count: int) -> list[str]:
    return [str(k) for k in range(count)]


def parts(count: int, wanted: list[int]) -> list[tuple[int, int]]:
    """A partition into aligned subtrees, as large as the next of `wanted` allows."""
    found: list[tuple[int, int]] = []
    first = 0
    while first < count:
        size = largest_subtree(first, count, wanted[len(found) % len(wanted)])
        found.append((first, size))
        first += size
    return found


@pytest.mark.parametrize(("count", "sum_of_all"), table("core/consistency/tables", "sums").items())
def test_neighbours_are_paired_and_an_odd_one_is_carried_up(count: int, sum_of_all: str) -> None:
    assert tree_sum(leaves(count), written) == sum_of_all


@given(count=st.integers(1, 128), wanted=st.lists(st.integers(1, 64), min_size=1, max_size=64))
def test_any_partition_into_aligned_subtrees_makes_the_same_additions(
    count: int, wanted: list[int]
) -> None:
    rows: list[str | None] = [None] * count
    for first, size in parts(count, wanted):
        rows[first] = tree_sum(leaves(count)[first : first + size], written)

    def add(a: str | None, b: str | None) -> str | None:
        """A row that nobody sent counts as zero, which changes nothing."""
        if a is None:
            return b
        if b is None:
            return a
        return written(a, b)

    assert tree_sum(rows, add) == tree_sum(leaves(count), written)


@pytest.mark.parametrize(
    ("first", "count", "wanted", "size"), table("core/consistency/tables", "subtrees")
)
def test_the_largest_subtree_that_begins_at_a_leaf(
    first: int, count: int, wanted: int, size: int
) -> None:
    assert largest_subtree(first, count, wanted) == size


def test_every_size_there_is_and_no_other_and_none_is_larger_than_is_wanted() -> None:
    for count in range(1, 129):
        found = set()
        for first, wanted in product(range(count), range(1, count + 1)):
            size = largest_subtree(first, count, wanted)
            assert 1 <= size <= wanted
            found.add(size)
        assert set(subtree_sizes(count)) == found, count
