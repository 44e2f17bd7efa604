"""Each mistake is named once: its file and line, its key, its value, and what to do about it."""

import re
from typing import Any

import pytest

from core.documents.yaml_document import MAXIMUM_DEPTH, parse
from tests.core.inventory.cases import THREE_NODES, edited, machine, only, problems
from tests.tables import table

MESSAGES = table("core/inventory/messages")


@pytest.mark.parametrize("case", MESSAGES.values(), ids=MESSAGES)
def test_what_is_wrong_is_said(case: dict[str, Any]) -> None:
    if "parse" in case:
        found = parse(case["parse"], "mine.yaml").problems
    else:
        text = edited(*case.get("change", {}).items(), text=case.get("text", THREE_NODES))
        on = machine(**case.get("machine", {}))
        found = [*problems(text, case.get("set", ()), on)]
    said = "\n".join(map(str, found))
    expected = re.escape("\n".join(case["says"])).replace(r"\.\.\.", ".*")
    assert re.fullmatch(expected, said), said


def test_a_problem_knows_its_line_of_the_file_or_its_override() -> None:
    of_file = only(edited(("epochs: 30", "epochs: 0")))
    of_override = only(THREE_NODES, ["jobs.train.epochs=0"])
    assert (of_file.file, of_file.line, of_file.override) == ("mine.yaml", 21, None)
    assert (of_override.line, of_override.override) == (None, "jobs.train.epochs=0")


@pytest.mark.parametrize(
    ("override", "key", "problem", "remedy"),
    [
        ("jobs.\ud800=3", "", "KEY=VALUE", "jobs.train.epochs=3"),
        (f"{'a.' * 5000}a=3", "", "KEY=VALUE", "jobs.train.epochs=3"),
        ("jobs.train.data.source=\ud800", "jobs.train.data.source", "not valid YAML", "quotes"),
    ],
    ids=["surrogate in the key", "deep", "surrogate in the value"],
)
def test_an_override_that_no_file_could_hold(
    override: str, key: str, problem: str, remedy: str
) -> None:
    found = only(THREE_NODES, [override])
    assert (found.override, found.key) == (override, key)
    assert problem in found.problem
    assert remedy in found.remedy


@pytest.mark.parametrize(
    ("text", "line", "problem", "remedy"),
    [
        (f"%YAML {'9' * 5000}.1\n---\na: 1\n", None, "not valid YAML", "directive"),
        (f"a: {'9' * 5000}\n", 1, "5000 characters", "at most"),
        (f"a: 0x{'F' * 5000}\n", 1, "5002 characters", "at most"),
        ("a: &a [*a]\n", 1, f"more than {MAXIMUM_DEPTH} levels", "without so many"),
        ("a: " + "[" * 60 + "]" * 60, 1, f"more than {MAXIMUM_DEPTH} levels", "without so many"),
        ("a: " + "[" * 1_000, None, "nested too deeply", "levels"),
        ("- " * 1_000, None, "nested too deeply", "levels"),
    ],
    ids=["version", "digits", "hexadecimal", "itself", "levels", "open", "entries"],
)
def test_a_yaml_file_that_is_too_much(
    text: str, line: int | None, problem: str, remedy: str
) -> None:
    (found,) = parse(text, "mine.yaml").problems
    assert found.line == line
    assert problem in found.problem
    assert remedy in found.remedy


def test_aliases_that_stand_for_billions_of_values_are_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    (found,) = parse("\n".join(lines), "mine.yaml").problems
    assert "more than 20000 values" in found.problem
