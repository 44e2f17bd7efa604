"""Inventories the tests start from, and machines that answer without a network."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from core.inventory import Inventory, InventoryError, InventoryProblem, Machine
from core.inventory.loading import loads

PROJECT = Path(__file__).parents[3]

THREE_NODES = """\
schema: 1
cluster: bench
connection: ssh
nodes:
  - name: rpi01
    address: 192.168.1.16
    roles: [storage, ps, coordinator]
  - name: rpi02
    address: 192.168.1.17
    roles: [worker]
  - name: rpi03
    address: 192.168.1.18
    roles:
      - worker
storage: {server: rpi01}
jobs:
  pi: {samples: 1000}
  train:
    model: {name: thesis, hidden: 64}
    optimizer: {name: adamw, learning_rate: 0.002}
    epochs: 30
"""


def machine(
    interfaces: Mapping[str, tuple[str, ...]] | None = None,
    names: Mapping[str, str] | None = None,
    hostname: str = "laptop",
) -> Machine:
    """A machine with these interfaces, in a network that knows these host names."""
    known = {"lo": ("127.0.0.1",), "eth0": ("10.0.0.5",)} if interfaces is None else interfaces
    return Machine(hostname=lambda: hostname, interfaces=lambda: known, resolve=(names or {}).get)


def read(text: str, overrides: Sequence[str] = (), on: Machine | None = None) -> Inventory:
    """The inventory of the text, as the given machine reads it."""
    return loads(text, "mine.yaml", overrides, path=Path("mine.yaml"), machine=on or machine())


def problems(
    text: str, overrides: Sequence[str] = (), on: Machine | None = None
) -> tuple[InventoryProblem, ...]:
    """What is wrong with the text; nothing when it can be read."""
    try:
        read(text, overrides, on)
    except InventoryError as error:
        return error.problems
    return ()


def only(text: str, overrides: Sequence[str] = (), on: Machine | None = None) -> InventoryProblem:
    """The one thing wrong with the text."""
    found = problems(text, overrides, on)
    assert len(found) == 1, "\n".join(str(problem) for problem in found) or "no problem found"
    return found[0]


def edited(*changes: tuple[str, str], text: str = THREE_NODES) -> str:
    """The text with each first string replaced by the second; each must be there."""
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    return text
