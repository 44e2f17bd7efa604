"""What would make a start fail on a node is found before it, with what to do about it."""

from typing import Any

from deploy.converge.hardware import clones
from tests.deploy.converge import examined
from tests.deploy.converge.examined import findings, found
from tests.deploy.converge.pi import untouched
from tests.deploy.converge.tables import rows


@rows("checks")
def test_what_a_check_finds(row: Any) -> None:
    told = examined.of_row(row)
    finds = row.get("finds", {})
    assert told.keys() == {*finds, *row.get("beside", ())}
    for topic, pieces in finds.items():
        assert told[topic].level == row.get("level", "problem")
        assert [piece for piece in pieces if piece not in told[topic].line] == [], told[topic].line


def test_a_fit_node_says_what_it_is() -> None:
    lines = {one.subject: one.line for one in findings() if one.level == "ok"}
    model = "Raspberry Pi 3 Model B Plus Rev 1.3, 4 cores, 950 MB, Python 3.11.2"
    assert lines["rpi01 node"] == model
    assert "= 90 MB of 950 MB" in lines["rpi01 memory"]


@rows("problems")
def test_what_keeps_a_node_out(row: Any) -> None:
    ((topic, problem),) = found(**row["facts"]).items()
    assert (topic, problem.level) == (row["topic"], "problem")
    assert (problem.node, problem.subject) == ("rpi01", f"rpi01 {topic}")
    assert all(piece in problem.line for piece in row["says"]), problem.line


@rows("warnings")
def test_what_is_worth_knowing_keeps_nobody_out(row: Any) -> None:
    warnings = found(**row["facts"])
    assert {one.level for one in warnings.values()} == {"warning"}
    line = warnings[row["topic"]].line
    assert all(piece in line for piece in row["says"]), line


def test_cards_that_were_copied_are_named() -> None:
    facts = {
        "rpi01": untouched(machine_id="a", host_keys=frozenset({"x", "y"})),
        "rpi02": untouched(machine_id="a", host_keys=frozenset({"z"})),
        "rpi03": untouched(machine_id="b", host_keys=frozenset({"y"})),
        "rpi04": untouched(),
        "rpi05": untouched(),
    }
    said = {
        name: [line.partition(",")[0] for line in lines] for name, lines in clones(facts).items()
    }
    assert said == {
        "rpi01": ["it has the SSH host key of rpi03", "it has the machine-id of rpi02"],
        "rpi02": ["it has the machine-id of rpi01"],
        "rpi03": ["it has the SSH host key of rpi01"],
    }
    (key,) = clones(facts)["rpi03"]
    (identity,) = clones(facts)["rpi02"]
    assert "dpkg-reconfigure openssh-server" in key
    assert "systemd-machine-id-setup" in identity
