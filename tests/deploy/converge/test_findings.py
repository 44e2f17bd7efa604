from typing import Any

from deploy.converge.check import Finding
from deploy.terminal.deployments import grouped, name_nodes
from tests.deploy.converge.tables import rows

NODES = [f"rpi{number:02d}" for number in range(1, 17)]


def everywhere(topic: str, line: str, level: Any = "warning") -> list[Finding]:
    return [Finding(level, f"{name} {topic}", line, name) for name in NODES]


def test_groups_come_in_the_order_of_the_first_of_each() -> None:
    clock = Finding("problem", "rpi01 clock", "an hour ahead", "rpi01")
    data = Finding("ok", "data", "synthetic recordings")
    found = [*everywhere("memory limits", "is off")[1:], clock, data, clock]
    assert [(one.level, one.topic, one.line, one.nodes) for one in grouped(found)] == [
        ("warning", "memory limits", "is off", "15 nodes (all but rpi01)"),
        ("problem", "clock", "an hour ahead", "rpi01"),
        ("ok", "data", "synthetic recordings", ""),
    ]


@rows("few_words", "first", "last", "words")
def test_nodes_in_few_words(first: int, last: int, words: str) -> None:
    assert name_nodes(NODES[first:last], NODES) == words


def test_every_node_of_a_problem_is_named() -> None:
    five = "rpi01, rpi02, rpi03, rpi04, rpi05"
    assert name_nodes(NODES[:5], NODES, every_name=True) == five
    found = [*everywhere("disk", "full", "problem")[:5], *everywhere("memory limits", "is off")]
    assert grouped(found)[0].nodes == five
