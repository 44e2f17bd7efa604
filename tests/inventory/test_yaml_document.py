"""YAML becomes plain values with their lines; what YAML allows and an inventory does not is named."""

import pytest

from cluster.inventory.yaml_document import MAXIMUM_DEPTH, parse


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("true", True),
        ("2e-3", 0.002),
        ("1E3", 1000.0),
        ("010", 10),
        ("0x1F", 31),
        ("0o17", 15),
        ("100_000_000", 100_000_000),
        ("22:22", "22:22"),
        ("192.168.1.26", "192.168.1.26"),
        ("2026-11-20", "2026-11-20"),
        ("-.inf", float("-inf")),
        ("+.INF", float("inf")),
        ("~", None),
        ("'5'", "5"),
        ("!!str 5", "5"),
        ("'a: [b'", "a: [b"),
    ],
)
def test_scalars_are_those_of_yaml_1_2(text: str, value: object) -> None:
    document = parse(f"key: {text}\n", "mine.yaml")

    assert not document.problems
    assert document.value == {"key": value}
    assert type(document.value["key"]) is type(value)


def test_every_key_and_entry_has_its_line() -> None:
    document = parse("a:\n  b: 1\n  c:\n    - 2\n    - d: 3\n", "mine.yaml")

    assert document.value == {"a": {"b": 1, "c": (2, {"d": 3})}}
    assert document.lines == {
        (): 1,
        ("a",): 1,
        ("a", "b"): 2,
        ("a", "c"): 3,
        ("a", "c", 0): 4,
        ("a", "c", 1): 5,
        ("a", "c", 1, "d"): 5,
    }


def test_all_duplicate_keys_are_found_not_only_the_first() -> None:
    document = parse("a: 1\nb: 2\na: 3\nb: 4\n", "mine.yaml")

    assert [(found.line, found.key, found.problem) for found in document.problems] == [
        (3, "a", "given twice, first on line 1"),
        (4, "b", "given twice, first on line 2"),
    ]


@pytest.mark.parametrize(
    ("text", "line", "problem", "remedy"),
    [
        ("a: 1\n b: 2\n", 2, "not valid YAML", "indentation"),
        ("a:\n\tb: 2\n", 2, "not valid YAML", "not tabs"),
        ("a: 1\n---\nb: 2\n", 2, "not valid YAML", "check"),
        ("a: [1, 2\nb: 2\n", 2, "not valid YAML", "check"),
        ("a: *nobody\n", 1, "not valid YAML", "check"),
        ("a: \x07\n", None, "not valid YAML", "remove the character"),
        ('a: "\\UFFFFFFFF"\n', None, "not valid YAML", "escape"),
        (f"%YAML {'9' * 5000}.1\n---\na: 1\n", None, "not valid YAML", "directive"),
        ("a: !!python/object/apply:os.system [ls]\n", 1, "the tag 'tag:yaml.org,2002:python", "remove the tag"),
        ("a: !secret b\n", 1, "the tag '!secret' is not supported", "remove the tag"),
        ("a: !!int b\n", 1, "no value of the tag", "remove the tag"),
        ("a: !!binary aGFsbG8=\n", 1, "is not supported", "remove the tag"),
        ('"\\ud800": a\n', 1, "cannot be a key", "quotes"),
        ("a: !!set [b]\n", 1, "is not supported", "remove the tag"),
        ("5: a\n", 1, "'5' cannot be a key", "quotes"),
        ("[a, b]: c\n", 1, "cannot be a key", "use a word"),
        ("a: &a {b: 1}\nc: {<<: *a}\n", 2, "merge keys", "write the keys out"),
        (f"a: {'9' * 5000}\n", 1, "5000 characters", "at most"),
        (f"a: 0x{'F' * 5000}\n", 1, "5002 characters", "at most"),
        ("a: &a [*a]\n", 1, f"more than {MAXIMUM_DEPTH} levels", "without so many"),
        ("a: " + "[" * 60 + "]" * 60, 1, f"more than {MAXIMUM_DEPTH} levels", "without so many"),
        ("a: " + "[" * 1_000, None, "nested too deeply", "levels"),
        ("- " * 1_000, None, "nested too deeply", "levels"),
    ],
)
def test_what_an_inventory_cannot_be_is_named(text: str, line: int | None, problem: str, remedy: str) -> None:
    (found,) = parse(text, "mine.yaml").problems

    assert found.line == line
    assert problem in found.problem
    assert remedy in found.remedy


def test_aliases_that_stand_for_billions_of_values_are_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]

    (found,) = parse("\n".join(lines), "mine.yaml").problems

    assert "more than 20000 values" in found.problem


def test_an_alias_repeats_a_value() -> None:
    assert parse("a: &a {b: 1}\nc: *a\n", "mine.yaml").value == {"a": {"b": 1}, "c": {"b": 1}}
