"""No input of any kind ends in anything but an inventory or an InventoryError."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from core.documents import LISTED_PROBLEMS
from core.inventory import Inventory, InventoryError, Machine, load
from tests.core.inventory.cases import PROJECT, THREE_NODES, machine, read
from tests.tables import table

THESIS = (PROJECT / "inventory.yaml").read_text(encoding="utf-8")
LOCAL = (PROJECT / "inventories" / "local.yaml").read_text(encoding="utf-8")
VALID = [THREE_NODES, THESIS, LOCAL]
MACHINES = [
    machine(),
    machine({}, {}, ""),
    machine({"eth0": ("192.168.1.17", "127.0.1.1")}, hostname="rpi11"),
]
WORDS = sorted({word.strip("[]{},:- ") for text in VALID for word in text.split()} - {""})

ODD = ["127.0.0.1", "127.0.1.1", "0.0.0.0", "8.8.8.8", "1e999", "ps", "eth0", "\ud800", "a\nb", ""]
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from([*WORDS, *ODD])
)
keys = st.sampled_from(WORDS) | st.text(max_size=4)
trees = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)
machines = st.sampled_from(MACHINES)
quickly = settings(max_examples=100, deadline=None)
PATHS = table("core/inventory/tables", "paths")


def written(value: Any, flow: bool = False) -> str:
    """The value as YAML; with `flow` on one line."""
    text = yaml.safe_dump(
        value, default_flow_style=flow or None, width=10**6, allow_unicode=True, sort_keys=False
    )
    return text.removesuffix("...\n").strip() if flow else text


def outcome(attempt: Callable[[], Inventory]) -> Inventory | InventoryError:
    try:
        return attempt()
    except InventoryError as error:
        return error


def ends_well(attempt: Callable[[], Inventory]) -> None:
    found = outcome(attempt)
    if isinstance(found, InventoryError):
        assert found.problems
        assert all(problem.problem and problem.remedy for problem in found.problems)
        said = str(found)
        assert len(said.splitlines()) == min(len(found.problems), LISTED_PROBLEMS + 1)
        assert said.encode("utf-8")
        return
    tasks = found.tasks()
    addresses = [address for task in tasks for address in (task.address, task.metrics_address)]
    assert len(set(addresses)) == len(addresses)
    assert {task.role for task in tasks} == {"ps", "worker", "coordinator"}
    assert json.loads(found.model_dump_json(by_alias=True))["schema"] == 1


@pytest.fixture(scope="module")
def somewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("any") / "mine.yaml"


@quickly
@given(
    content=st.binary(max_size=300) | st.text(max_size=100).map(lambda text: text.encode("utf-16"))
)
def test_any_bytes(somewhere: Path, content: bytes) -> None:
    somewhere.write_bytes(content)
    ends_well(lambda: load(somewhere))


@quickly
@given(path=st.text(max_size=40))
def test_any_path(path: str) -> None:
    ends_well(lambda: load(path))


SIGNS = st.characters() | st.sampled_from("\n :-[]{}&*!|>'\"%@`#,?\t")


@quickly
@given(text=st.text(SIGNS, max_size=200) | trees.map(written), on=machines)
def test_any_text_and_any_yaml(text: str, on: Machine) -> None:
    ends_well(lambda: read(text, on=on))


@quickly
@given(data=st.data(), text=st.sampled_from(VALID), on=machines)
def test_an_inventory_with_text_damaged(data: st.DataObject, text: str, on: Machine) -> None:
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        rest = text[start + data.draw(st.integers(0, 30)) :]
        text = text[:start] + data.draw(st.text(max_size=6) | st.sampled_from(WORDS)) + rest
    ends_well(lambda: read(text, on=on))


@quickly
@given(data=st.data(), text=st.sampled_from(VALID), on=machines)
def test_an_inventory_with_values_replaced(data: st.DataObject, text: str, on: Machine) -> None:
    tree = yaml.safe_load(text)
    for _ in range(data.draw(st.integers(1, 4))):
        damage(tree, data)
    ends_well(lambda: read(written(tree), on=on))


def damage(holder: Any, data: st.DataObject) -> None:
    """Somewhere in the tree, remove a value, replace it, or give it another key."""
    places = [*holder] if isinstance(holder, dict) else [*range(len(holder))]
    if not places:
        return
    place = data.draw(st.sampled_from(places))
    if isinstance(holder[place], dict | list) and data.draw(st.booleans()):
        damage(holder[place], data)
        return
    action = data.draw(st.sampled_from(["remove", "replace", "rename", "repeat"]))
    if action == "replace":
        holder[place] = data.draw(trees)
    elif action == "repeat" and isinstance(holder, list):
        holder.append(holder[place])
    else:
        value = holder.pop(place)
        if action == "rename" and isinstance(holder, dict):
            holder[data.draw(keys)] = value


settings_made = st.builds(
    lambda parts, value: f"{'.'.join(parts)}={value}",
    st.lists(keys, max_size=5),
    trees.map(repr) | st.text(),
)
settings_with_a_key_there_is = st.builds(
    lambda path, value: f"{path}={written(value, flow=True)}", st.sampled_from(PATHS), trees
)


@quickly
@given(
    text=st.sampled_from(VALID),
    overrides=st.lists(st.text(max_size=30) | settings_made, max_size=4)
    | settings_with_a_key_there_is.map(lambda setting: [setting]),
    on=machines,
)
def test_any_override(text: str, overrides: list[str], on: Machine) -> None:
    ends_well(lambda: read(text, overrides, on))
