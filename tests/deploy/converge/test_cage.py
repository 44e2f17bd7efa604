"""What a node's kernel can forbid a role is in its facts, and `check` reports it."""

from core.cage import landlock
from deploy.converge.hardware import CAGE
from tests.deploy.converge.examined import findings
from tests.deploy.converge.tables import rows
from tests.ran import ran


def read(answer: str) -> object:
    return CAGE.facts["cage"](answer)


def test_the_node_s_own_python_asks_the_kernel() -> None:
    script = 'section() { echo "@@ $1"; }\n' + CAGE.script
    mark, answer = ran("sh", "-c", script).stdout.splitlines()
    assert mark == "@@ cage"
    assert read(answer) == landlock.kernel_coverage()


@rows("kernels", "answer", "level", "words")
def test_a_kernel_is_a_finding_with_what_it_does_not_cover(
    answer: str, level: str, words: str
) -> None:
    (one,) = [each for each in findings(more={"cage": read(answer)}) if " cage" in each.subject]
    assert one.level == level
    assert words in one.line


def test_a_node_without_python_says_nothing_of_it() -> None:
    assert read("") is None
