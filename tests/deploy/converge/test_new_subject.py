"""A new deployment step is one file: a subject with question, facts, check, resource and undo."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from deploy.converge.change import Change, Resource, Shell
from deploy.converge.deployment import PHASES, plan
from deploy.converge.machine_facts import MachineFacts, Questions
from deploy.converge.subject import DeploymentSpec, Found, NodeAnswer, NodeSpec, Subject
from deploy.converge.subjects import SUBJECTS, reset_script
from deploy.converge.survey import fact_script, read_facts
from tests.deploy.converge.examined import found
from tests.deploy.converge.pi import machines_for, thesis, untouched
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


def _check(spec: NodeSpec, facts: MachineFacts) -> Found:
    if facts.more.get("overcommit", 0) == 100:
        yield "warning", "overcommit", "grants any memory"


def _resources(spec: DeploymentSpec, node: str, facts: MachineFacts) -> Sequence[Resource]:
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


def planned(**facts: Any) -> list[str]:
    changes = plan(machines_for(thesis()), {"rpi01": untouched(**facts)})["prepare"]["rpi01"]
    return [change.detail for change in changes if change.kind == "overcommit"]


@pytest.mark.usefixtures("overcommit")
def test_one_file_asks_reads_checks_changes_and_undoes(node: PlayedNode) -> None:
    node.write("/proc/sys/vm/overcommit_memory", "100\n")
    node.write("/proc/uptime", "100.0 50.0\n")
    node.write("/proc/meminfo", "MemTotal: 1 kB\n")
    for name in ("date", "tar", "base64"):
        node.command(name, f'PATH=/usr/bin:/bin:/usr/sbin:/sbin exec {name} "$@"')
    facts = read_facts(node.run(fact_script(Questions())).stdout, 0.0, 0.0)
    assert facts.more["overcommit"] == 100

    assert found(more=facts.more)["overcommit"].line == "grants any memory"
    assert planned(more=facts.more) == ["to 1"]
    assert planned(more={"overcommit": 1}) == []

    done = node.run(reset_script(thesis(), "rpi01", data=False))
    assert done.returncode == 0, done.stderr
    assert node.at("/run/overcommit-undone").exists()


def test_every_subject_has_a_name_and_a_phase_of_its_own() -> None:
    assert len({subject.name for subject in SUBJECTS}) == len(SUBJECTS)
    assert {subject.phase for subject in SUBJECTS} <= set(PHASES)
