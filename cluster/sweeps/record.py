"""What a node says of a run, as far as a sweep's record takes it."""

from itertools import islice
from typing import Any

LONGEST_ERROR = 2000
MOST_FIGURES = 100
LONGEST_FIGURE_NAME = 100
LARGEST_FIGURE = 1e100


def figures_of_node(given: Any) -> dict[str, float | None]:
    """What a node says of a run's figures: printable names, numbers that JSON has a word for.

    Others are left out: the sweep's files and pages could not hold them.
    """
    if not isinstance(given, dict):
        return {}
    plain = (
        (name, value)
        for name, value in given.items()
        if str(name).isprintable()
        and len(name) <= LONGEST_FIGURE_NAME
        and (value is None or (type(value) in (int, float) and abs(value) <= LARGEST_FIGURE))
    )
    return dict(islice(plain, MOST_FIGURES))
