from collections.abc import Sequence
from typing import Any

import pytest

from deploy.converge.check import Finding
from deploy.terminal.console import grouped, name_nodes, show_findings

NODES = [f"rpi{number:02d}" for number in range(1, 17)]
MEMORY = "the kernel's memory controller is switched off"


def everywhere(topic: str, line: str, level: str = "warning") -> list[Finding]:
    return [Finding(level, f"{name} {topic}", line, name) for name in NODES]  # type: ignore[arg-type]


def test_what_all_nodes_share_is_said_once() -> None:
    (group,) = grouped(everywhere("memory limits", MEMORY))
    assert (group.level, group.topic, group.line) == ("warning", "memory limits", MEMORY)
    assert group.nodes == "all 16 nodes"


def test_groups_come_in_the_order_of_the_first_of_each() -> None:
    found = [
        *everywhere("memory limits", MEMORY)[1:],
        Finding("problem", "rpi01 clock", "an hour ahead", "rpi01"),
        Finding("ok", "data", "synthetic recordings"),
        Finding("problem", "rpi01 clock", "an hour ahead", "rpi01"),
    ]
    assert [(group.topic, group.nodes) for group in grouped(found)] == [
        ("memory limits", "15 nodes (all but rpi01)"),
        ("clock", "rpi01"),
        ("data", ""),
    ]


FEW_WORDS: Sequence[Any] = [
    ([], ""),
    (NODES[:1], "rpi01"),
    (NODES[:3], "rpi01, rpi02, rpi03"),
    (NODES[:5], "5 nodes (rpi01, ...)"),
    (NODES[2:], "14 nodes (all but rpi01, rpi02)"),
    (NODES, "all 16 nodes"),
]


def test_nodes_in_few_words() -> None:
    for names, words in FEW_WORDS:
        assert name_nodes(names, NODES) == words


def test_every_node_of_a_problem_is_named() -> None:
    assert name_nodes(NODES[:5], NODES, every_name=True) == "rpi01, rpi02, rpi03, rpi04, rpi05"
    groups = grouped([*everywhere("disk", "full", "problem")[:5], *everywhere("memory limits", MEMORY)])
    assert groups[0].nodes.endswith("rpi05")


def test_a_person_sees_one_line_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    show_findings([*everywhere("memory limits", MEMORY), Finding("problem", "rpi03 disk", "[full]", "rpi03")])
    assert capsys.readouterr().out.splitlines() == [
        f"  warning  all 16 nodes  memory limits {MEMORY}",
        "  problem  rpi03         disk          [full]",
    ]
    show_findings([Finding("ok", "worker:0", "ports 1 and 2 are free")])
    assert capsys.readouterr().out.splitlines() == ["  ok       worker:0      ports 1 and 2 are free"]


def test_programs_get_the_node_where_there_is_one() -> None:
    assert Finding("ok", "data", "x").to_json() == {"level": "ok", "subject": "data", "line": "x"}
    assert Finding("ok", "rpi03 disk", "x", "rpi03").to_json()["node"] == "rpi03"
