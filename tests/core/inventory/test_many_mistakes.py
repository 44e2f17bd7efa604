"""A file of nothing but mistakes is refused about as fast as it is read, in words that end."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from core.documents.problem import LISTED_PROBLEMS, InventoryError
from core.documents.yaml_document import parse
from core.inventory import load
from core.inventory.loading import MAXIMUM_BYTES

HEAD = "schema: 1\ncluster: a\n"
NODE = f"{HEAD}nodes:\n  - name: x\n    roles: [ps, worker, coordinator"
SHAPES = {
    "top": ("", "k{}: 1\n"),
    "one node": (f"{NODE}]\n", "    k{}: 1\n"),
    "a section": (f"{HEAD}ports:\n", "  porz{}: 1\n"),
    "roles": (NODE, ", k{}"),
}
"""The head of a file, and what is repeated behind it with a number."""


def mistakes(shape: str, count: int) -> str:
    head, line = SHAPES[shape]
    end = "]\n" if shape == "roles" else ""
    return head + "".join(line.format(number) for number in range(count)) + end


COUNT = 3000
SLOWER_THAN_READING = 8.0
"""Before: 60 times; now 2, on the same machine."""
ROUNDS = 2
"""The fastest counts: others met a collection of garbage or a busy machine."""


def fastest(read: Callable[[], object]) -> float:
    """CPU seconds of the fastest round."""
    taken = []
    for _ in range(ROUNDS):
        begin = time.process_time()
        read()
        taken.append(time.process_time() - begin)
    return min(taken)


def refused(file: Path) -> InventoryError:
    with pytest.raises(InventoryError) as found:
        load(file)
    return found.value


@pytest.mark.parametrize("shape", SHAPES)
def test_thousands_of_unknown_keys_are_counted_not_explained(shape: str, tmp_path: Path) -> None:
    text = mistakes(shape, COUNT)
    assert len(text) < MAXIMUM_BYTES
    file = tmp_path / "inventory.yaml"
    file.write_text(text)
    reading = fastest(lambda: parse(text, "inventory.yaml"))
    assert fastest(lambda: refused(file)) < SLOWER_THAN_READING * reading
    error = refused(file)
    *listed, last = str(error).splitlines()
    assert len(listed) == LISTED_PROBLEMS
    assert last == f"and {len(error.problems) - LISTED_PROBLEMS} more problems"
    assert len(error.problems) >= COUNT


def test_what_is_listed_says_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "inventory.yaml"
    file.write_text(HEAD + "nodez: []\n" + mistakes("top", 300))
    assert "did you mean `nodes`?" in str(refused(file))
