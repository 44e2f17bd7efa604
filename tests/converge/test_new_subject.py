"""A new deployment step is one file: a subject with its question, facts, check, resource and undo."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from cluster.inventory import Inventory
from deploy.converge.change import Change, Shell
from deploy.converge.deployment import plan
from deploy.converge.fact_reader import read_facts
from deploy.converge.fact_script import fact_script
from deploy.converge.machine_facts import MachineFacts, Questions
from deploy.converge.memory_estimate import estimate
from deploy.converge.preflight import examine
from deploy.converge.reset import Traces, reset_script
from deploy.converge.subject import Answer, Found, NodeWish, Subject
from deploy.converge.subjects import SUBJECTS
from tests.converge.pi import thesis, untouched, wish_for
from tests.converge.played_node import PlayedNode


@dataclass(frozen=True)
class Swappiness:
    """The kernel setting vm.swappiness."""

    wanted: int

    def changes(self, facts: MachineFacts) -> tuple[Change, ...]:
        """Set it."""
        if facts.more.get("swappiness") == self.wanted:
            return ()
        steps = (Shell("set it", f"sysctl vm.swappiness={self.wanted}"),)
        return (Change("kernel", "vm.swappiness", "change", f"to {self.wanted}", steps),)


def _read(answer: Answer) -> Mapping[str, object]:
    return {"swappiness": int(answer.sections["swappiness"])}


def _check(wish: NodeWish, facts: MachineFacts) -> Found:
    if facts.more.get("swappiness", 0) == 100:
        yield "warning", "swap", "swaps whenever it can"


def _resources(inventory: Inventory, node: str, facts: MachineFacts) -> Sequence[Swappiness]:
    return [Swappiness(1)]


SWAP = Subject(
    "swap",
    "prepare",
    lambda questions: "section swappiness; cat /proc/sys/vm/swappiness\n",
    _read,
    _check,
    _resources,
    "touch /run/swappiness-undone\n",
)


@pytest.fixture
def swap() -> Iterator[None]:
    SUBJECTS.append(SWAP)
    yield
    SUBJECTS.remove(SWAP)


def answer_of(node: PlayedNode, questions: Questions) -> MachineFacts:
    node.write("/proc/sys/vm/swappiness", "100\n")
    node.write("/proc/uptime", "100.0 50.0\n")
    node.write("/proc/meminfo", "MemTotal: 1 kB\n")
    for name in ("uname", "getconf", "nproc", "ip", "df", "tar", "base64", "readlink", "du", "date"):
        node.command(name, f'PATH=/usr/bin:/bin:/usr/sbin:/sbin exec {name} "$@"')
    return read_facts(node.run(fact_script(questions)).stdout, 0.0, 0.0)


@pytest.mark.usefixtures("swap")
def test_one_file_asks_reads_checks_changes_and_undoes(tmp_path: Path) -> None:
    node = PlayedNode(tmp_path / "node")
    facts = answer_of(node, Questions())
    assert facts.more == {"swappiness": 100}

    inventory = thesis()
    wish = NodeWish.of(inventory, "rpi01", estimate(32), None)
    swapping = untouched(inventory.hosts["rpi01"], more=facts.more)
    assert [one.line for one in examine(wish, swapping) if one.topic == "swap"] == ["swaps whenever it can"]

    changes = plan(wish_for(inventory), {"rpi01": swapping})["prepare"]["rpi01"]
    assert [change.detail for change in changes if change.kind == "kernel"] == ["to 1"]
    settled = untouched(inventory.hosts["rpi01"], more={"swappiness": 1})
    assert "kernel" not in {one.kind for one in plan(wish_for(inventory), {"rpi01": settled})["prepare"]["rpi01"]}

    done = node.run(reset_script(Traces.of(inventory, False), "rpi01"))
    assert done.returncode == 0, done.stderr
    assert (node.root / "run" / "swappiness-undone").exists()


def test_every_subject_has_a_name_and_a_phase_of_its_own() -> None:
    from deploy.converge.deployment import PHASES

    assert len({subject.name for subject in SUBJECTS}) == len(SUBJECTS)
    assert {subject.phase for subject in SUBJECTS} <= set(PHASES)
