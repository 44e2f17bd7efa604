"""A file of nothing but mistakes is refused about as fast as it is read, in words that end."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.inventory import load
from cluster.inventory.loading import MAXIMUM_BYTES
from cluster.inventory.problem import LISTED_PROBLEMS, InventoryError
from cluster.inventory.yaml_document import parse

HEAD = "schema: 1\ncluster: a\n"
SHAPES: dict[str, Callable[[int], str]] = {
    "top": lambda count: "".join(f"k{number}: 1\n" for number in range(count)),
    "one node": lambda count: (
        f"{HEAD}nodes:\n  - name: x\n    roles: [ps, worker, coordinator]\n"
        + "".join(f"    k{number}: 1\n" for number in range(count))
    ),
    "a section": lambda count: f"{HEAD}ports:\n" + "".join(f"  porz{number}: 1\n" for number in range(count)),
    "roles": lambda count: (
        f"{HEAD}nodes:\n  - name: x\n    roles: [" + ", ".join(f"k{number}" for number in range(count)) + "]\n"
    ),
}
COUNT = 7000
SLOWER_THAN_READING = 8.0
"""Before: 60 times; now 2, on the same machine."""


@pytest.mark.parametrize("shape", SHAPES)
def test_thousands_of_unknown_keys_are_counted_not_explained(shape: str, tmp_path: Path) -> None:
    text = SHAPES[shape](COUNT)
    assert len(text) < MAXIMUM_BYTES
    file = tmp_path / "inventory.yaml"
    file.write_text(text)
    begin = time.process_time()
    parse(text, "inventory.yaml")
    reading = time.process_time() - begin
    begin = time.process_time()
    with pytest.raises(InventoryError) as refused:
        load(file)
    assert time.process_time() - begin < SLOWER_THAN_READING * reading
    *listed, last = str(refused.value).splitlines()
    assert len(listed) == LISTED_PROBLEMS
    assert last == f"and {len(refused.value.problems) - LISTED_PROBLEMS} more problems"
    assert len(refused.value.problems) >= COUNT


def test_what_is_listed_says_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "inventory.yaml"
    file.write_text(HEAD + "nodez: []\n" + SHAPES["top"](300))
    with pytest.raises(InventoryError) as refused:
        load(file)
    assert "did you mean `nodes`?" in str(refused.value)
