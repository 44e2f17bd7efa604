"""The fixed binary tree over the micro-batches of a step, and which of its subtrees one worker can add up alone.

Leaves 0..n-1 are paired (0, 1), (2, 3), ...; the sums are paired again, an odd one is carried up. Every worker adds an
aligned subtree in the same order, so sums have the same bits however the leaves were distributed.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

Value = TypeVar("Value")


def tree_sum(values: Sequence[Value], add: Callable[[Value, Value], Value]) -> Value:
    """The sum of at least one value, added in pairs of neighbours, again and again."""
    level = list(values)
    while len(level) > 1:
        level = [add(level[k], level[k + 1]) if k + 1 < len(level) else level[k] for k in range(0, len(level), 2)]
    return level[0]


def largest_subtree(first: int, leaves: int, wanted: int) -> int:
    """Leaves of the largest subtree that begins at leaf `first` and has at most `wanted`; at least 1."""
    best = size = 1
    while first % (2 * size) == 0:
        size *= 2
        count = min(size, leaves - first)
        if count > wanted:
            break
        best = count
        if count < size:
            break
    return best


def subtree_sizes(leaves: int) -> tuple[int, ...]:
    """Every number of leaves that an aligned subtree of a tree of `leaves` can have, ascending."""
    sizes = {1}
    size = 2
    while size < 2 * leaves:
        sizes |= {min(size, leaves - first) for first in range(0, leaves, size)}
        size *= 2
    return tuple(sorted(sizes))
