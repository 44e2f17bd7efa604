"""No input of any kind ends in anything but an inventory or an InventoryError."""

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.inventory import Inventory, InventoryError, Machine, load
from cluster.inventory.problem import LISTED_PROBLEMS
from tests.inventory.cases import PROJECT, THREE_NODES, machine, read

THESIS = (PROJECT / "inventory.yaml").read_text(encoding="utf-8")
LOCAL = (PROJECT / "inventories" / "local.yaml").read_text(encoding="utf-8")
VALID = [THREE_NODES, THESIS, LOCAL]
MACHINES = [machine(), machine({}, {}, ""), machine({"eth0": ("192.168.1.17", "127.0.1.1")}, hostname="rpi11")]
WORDS = sorted({word.strip("[]{},:- ") for text in VALID for word in text.split()} - {""})

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(WORDS)
    | st.sampled_from(["127.0.0.1", "127.0.1.1", "0.0.0.0", "8.8.8.8", "1e999", "\ud800", "a\nb", "", "ps", "eth0"])
)
keys = st.sampled_from(WORDS) | st.text(max_size=4)
trees = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4), max_leaves=12
)
machines = st.sampled_from(MACHINES)
quickly = settings(max_examples=100, deadline=None)


def outcome(attempt: Callable[[], Inventory]) -> Inventory | InventoryError:
    try:
        return attempt()
    except InventoryError as error:
        return error


def ends_well(attempt: Callable[[], Inventory]) -> None:
    inventory = outcome(attempt)
    if isinstance(inventory, InventoryError):
        assert inventory.problems
        assert all(problem.problem and problem.remedy for problem in inventory.problems)
        assert len(str(inventory).splitlines()) == min(len(inventory.problems), LISTED_PROBLEMS + 1)
        assert str(inventory).encode("utf-8")
        return
    tasks = inventory.tasks()
    addresses = [address for task in tasks for address in (task.address, task.metrics_address)]
    assert len(set(addresses)) == len(addresses)
    assert {"ps", "worker", "coordinator"} == {task.role for task in tasks}
    assert json.loads(inventory.model_dump_json(by_alias=True))["schema"] == 1


@pytest.fixture(scope="module")
def somewhere() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "mine.yaml"


@quickly
@given(content=st.binary(max_size=300) | st.text(max_size=100).map(lambda text: text.encode("utf-16")))
def test_any_bytes(somewhere: Path, content: bytes) -> None:
    somewhere.write_bytes(content)

    ends_well(lambda: load(somewhere))


@quickly
@given(path=st.text(max_size=40))
def test_any_path(path: str) -> None:
    ends_well(lambda: load(path))


@quickly
@given(text=st.text(alphabet=st.characters() | st.sampled_from("\n :-[]{}&*!|>'\"%@`#,?\t"), max_size=200))
def test_any_text(text: str) -> None:
    ends_well(lambda: read(text))


@quickly
@given(tree=trees, on=machines)
def test_any_yaml(tree: Any, on: Machine) -> None:
    ends_well(lambda: read(yaml.safe_dump(tree, allow_unicode=True), on=on))


@quickly
@given(data=st.data(), on=machines)
def test_an_inventory_with_text_damaged(data: st.DataObject, on: Machine) -> None:
    text = data.draw(st.sampled_from(VALID))
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        stop = min(len(text), start + data.draw(st.integers(0, 30)))
        text = text[:start] + data.draw(st.text(max_size=6) | st.sampled_from(WORDS)) + text[stop:]

    ends_well(lambda: read(text, on=on))


@quickly
@given(data=st.data(), on=machines)
def test_an_inventory_with_values_replaced(data: st.DataObject, on: Machine) -> None:
    tree = yaml.safe_load(data.draw(st.sampled_from(VALID)))
    for _ in range(data.draw(st.integers(1, 4))):
        damage(tree, data)

    ends_well(lambda: read(yaml.safe_dump(tree, allow_unicode=True, sort_keys=False), on=on))


def damage(tree: Any, data: st.DataObject) -> None:
    """Somewhere in the tree, remove a value, replace it, or give it another key."""
    holder = tree
    while True:
        places = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        if not places:
            return
        place = data.draw(st.sampled_from(places))
        if isinstance(holder[place], dict | list) and data.draw(st.booleans()):
            holder = holder[place]
            continue
        action = data.draw(st.sampled_from(["remove", "replace", "rename", "repeat"]))
        if action == "replace":
            holder[place] = data.draw(trees)
        elif action == "repeat" and isinstance(holder, list):
            holder.append(holder[place])
        else:
            value = holder.pop(place)
            if action == "rename" and isinstance(holder, dict):
                holder[data.draw(keys)] = value
        return


@quickly
@given(
    text=st.sampled_from(VALID),
    overrides=st.lists(
        st.text(max_size=30)
        | st.builds(
            lambda parts, value: f"{'.'.join(parts)}={value}", st.lists(keys, max_size=5), trees.map(repr) | st.text()
        ),
        max_size=4,
    ),
    on=machines,
)
def test_any_override(text: str, overrides: list[str], on: Machine) -> None:
    ends_well(lambda: read(text, overrides, on))


@quickly
@given(
    text=st.sampled_from(VALID),
    path=st.sampled_from(
        [
            "cluster",
            "nodes",
            "nodes.0",
            "nodes.0.name",
            "nodes.0.roles",
            "nodes.0.roles.0",
            "storage",
            "ports",
            "ports.worker",
            "jobs",
            "jobs.pi",
            "jobs.train",
            "jobs.train.recipe",
            "jobs.train.model",
            "jobs.train.model.name",
            "jobs.train.optimizer.name",
            "jobs.train.validation_subjects",
            "interface",
            "ssh",
        ]
    ),
    value=trees,
)
def test_any_value_for_a_key_there_is(text: str, path: str, value: Any) -> None:
    flow = yaml.safe_dump(value, default_flow_style=True, width=10**6, allow_unicode=True).removesuffix("...\n").strip()

    ends_well(lambda: read(text, [f"{path}={flow}"]))
