"""The mutants of the guards can be planted."""

from pathlib import Path

import pytest

from tests.deploy.tables import Tables
from tests.habits import needs
from tests.ran import ran
from tests.tiers import read_costs
from tools.plant import PROJECT, Mutant, copy_tree, read_mutants, verdict

rows = Tables(__file__)

MUTANTS = read_mutants()
ONE = Mutant("lets all in", "gate.py", "if known:", "if True:", "tests/test_gate.py::test_gate")


def test_a_mutant_changes_the_one_guard() -> None:
    assert ONE.planted("if known:\n    enter()\n") == "if True:\n    enter()\n"


@pytest.mark.parametrize("text", ["enter()\n", "if known:\n    a()\nif known:\n    b()\n"])
def test_a_guard_that_is_gone_or_stands_twice_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"gate\.py: expected once, found [02] times"):
        ONE.planted(text)


def test_words_choose_by_file_test_or_effect() -> None:
    for word in ("gate.py", "test_gate", "lets all"):
        assert ONE.has(word)
    assert not ONE.has("store")


@rows("status", "words")
def test_a_mutant_counts_as_killed_only_if_a_test_failed(status: int, words: str) -> None:
    assert verdict(status).startswith(words)


def test_the_copy_shares_no_file_with_the_tree(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    ran(needs.tool("git"), "init", "--quiet", tree)
    (tree / "gate.py").write_text("if known:\n")
    copy = tmp_path / "copy"
    copy_tree(tree, copy)
    assert (copy / "gate.py").read_text() == "if known:\n"
    assert not (copy / "gate.py").samefile(tree / "gate.py")
    assert (copy / ".venv").is_symlink()


@pytest.mark.sources
def test_each_is_killed_in_the_fast_tier() -> None:
    costs = read_costs()
    dear = {*costs.stories, *costs.long, *costs.all}
    assert [mutant.test for mutant in MUTANTS if mutant.test in dear] == []


@pytest.mark.sources
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.file}: {mutant.effect}")
def test_each_guard_and_its_test_are_there(mutant: Mutant) -> None:
    assert mutant.planted((PROJECT / mutant.file).read_text(encoding="utf-8"))
    module, _, case = mutant.test.partition("::")
    name = case.partition("[")[0]
    assert f"def {name}(" in (PROJECT / module).read_text(encoding="utf-8")
