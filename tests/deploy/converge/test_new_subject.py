"""A new deployment step is one file: a subject with its question, facts, check, resource and undo."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from cluster.inventory import Inventory
from deploy.converge.change import Change, Shell
from deploy.converge.deployment import plan
from deploy.converge.machine_facts import MachineFacts, Questions
from deploy.converge.memory_estimate import estimate
from deploy.converge.preflight import examine
from deploy.converge.subject import Found, NodeAnswer, NodeWish, Subject
from deploy.converge.subjects import SUBJECTS, reset_script
from deploy.converge.survey import fact_script, read_facts
from tests.deploy.converge.pi import thesis, untouched, wish_for
from tests.deploy.converge.played_node import PlayedNode


@dataclass(frozen=True)
class Overcommit:
    """The kernel setting vm.overcommit_memory."""

    wanted: int

    def changes(self, facts: MachineFacts) -> tuple[Change, ...]:
        """Set it."""
        if facts.more.get("overcommit") == self.wanted:
            return ()
        steps = (Shell("set it", f"sysctl vm.overcommit_memory={self.wanted}"),)
        return (Change("overcommit", "vm.overcommit_memory", "change", f"to {self.wanted}", steps),)


def _read(answer: NodeAnswer) -> Mapping[str, object]:
    return {"overcommit": int(answer.sections["overcommit"])}


def _check(wish: NodeWish, facts: MachineFacts) -> Found:
    if facts.more.get("overcommit", 0) == 100:
        yield "warning", "overcommit", "grants any memory"


def _resources(inventory: Inventory, node: str, facts: MachineFacts) -> Sequence[Overcommit]:
    return [Overcommit(1)]


OVERCOMMIT = Subject(
    "overcommit",
    "prepare",
    lambda questions: "section overcommit; cat /proc/sys/vm/overcommit_memory\n",
    _read,
    _check,
    _resources,
    lambda: "touch /run/overcommit-undone\n",
)


@pytest.fixture
def overcommit() -> Iterator[None]:
    SUBJECTS.append(OVERCOMMIT)
    yield
    SUBJECTS.remove(OVERCOMMIT)


def answer_of(node: PlayedNode, questions: Questions) -> MachineFacts:
    node.write("/proc/sys/vm/overcommit_memory", "100\n")
    node.write("/proc/uptime", "100.0 50.0\n")
    node.write("/proc/meminfo", "MemTotal: 1 kB\n")
    for name in ("uname", "getconf", "nproc", "ip", "df", "tar", "base64", "readlink", "du", "date"):
        node.command(name, f'PATH=/usr/bin:/bin:/usr/sbin:/sbin exec {name} "$@"')
    return read_facts(node.run(fact_script(questions)).stdout, 0.0, 0.0)


@pytest.mark.usefixtures("overcommit")
def test_one_file_asks_reads_checks_changes_and_undoes(tmp_path: Path) -> None:
    node = PlayedNode(tmp_path / "node")
    facts = answer_of(node, Questions())
    assert facts.more["overcommit"] == 100

    inventory = thesis()
    wish = NodeWish(inventory, "rpi01", estimate(32), None)
    granting = untouched(inventory.hosts["rpi01"], more=facts.more)
    assert [one.line for one in examine(wish, granting) if one.topic == "overcommit"] == ["grants any memory"]

    changes = plan(wish_for(inventory), {"rpi01": granting})["prepare"]["rpi01"]
    assert [change.detail for change in changes if change.kind == "overcommit"] == ["to 1"]
    settled = untouched(inventory.hosts["rpi01"], more={"overcommit": 1})
    assert "overcommit" not in {one.kind for one in plan(wish_for(inventory), {"rpi01": settled})["prepare"]["rpi01"]}

    done = node.run(reset_script(inventory, "rpi01", data=False))
    assert done.returncode == 0, done.stderr
    assert (node.root / "run" / "overcommit-undone").exists()


def test_every_subject_has_a_name_and_a_phase_of_its_own() -> None:
    from deploy.converge.deployment import PHASES

    assert len({subject.name for subject in SUBJECTS}) == len(SUBJECTS)
    assert {subject.phase for subject in SUBJECTS} <= set(PHASES)
