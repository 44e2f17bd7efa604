"""YAML becomes plain values with their lines."""

import pytest

from core.documents.yaml_document import parse
from tests.tables import table


@pytest.mark.parametrize(("text", "value"), table("core/inventory/tables", "scalars"))
def test_scalars_are_those_of_yaml_1_2(text: str, value: object) -> None:
    document = parse(f"key: {text}\n", "mine.yaml")

    assert not document.problems
    assert document.value == {"key": value}
    assert type(document.value["key"]) is type(value)


def test_every_key_and_entry_has_its_line() -> None:
    document = parse("a:\n  b: 1\n  c:\n    - 2\n    - d: 3\n", "mine.yaml")
    assert document.value == {"a": {"b": 1, "c": (2, {"d": 3})}}
    lines = {".".join(map(str, path)): line for path, line in document.lines.items()}
    assert lines == {"": 1, "a": 1, "a.b": 2, "a.c": 3, "a.c.0": 4, "a.c.1": 5, "a.c.1.d": 5}


def test_an_alias_repeats_a_value() -> None:
    assert parse("a: &a {b: 1}\nc: *a\n", "mine.yaml").value == {"a": {"b": 1}, "c": {"b": 1}}
