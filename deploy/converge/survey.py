"""Every node of a cluster asked at once for its facts."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from cluster.errors import ClusterError
from deploy.cluster.cluster import Fleet
from deploy.cluster.connector import Connector
from deploy.converge.apply import StepFailedError, StepFailure
from deploy.converge.fact_reader import read_facts
from deploy.converge.fact_script import fact_script
from deploy.converge.machine_facts import MachineFacts, Questions

FACTS_SECONDS = 90.0
"""For one question; a Pi 3 that is busy training answers within ten."""

_NOT_FOUND = 127
"""A shell's exit code for a command that does not exist."""

Facts = TypeVar("Facts")


@dataclass(frozen=True)
class Survey(Generic[Facts]):
    """What the nodes answered; `lost` has the failure of each that did not."""

    facts: Mapping[str, Facts]
    lost: Mapping[str, StepFailure]


def survey(fleet: Fleet, ask: Callable[[Connector], Facts], names: Sequence[str] | None = None) -> Survey[Facts]:
    """Call `ask` with every node (of `names`) at once."""
    found = fleet.each(ask, names)
    facts = {name: answer for name, answer in found.items() if not isinstance(answer, ClusterError)}
    lost = {name: failure_of(name, error) for name, error in found.items() if isinstance(error, ClusterError)}
    return Survey(facts, lost)


def machine_facts(node: Connector, questions: Questions) -> MachineFacts:
    """The facts of one machine. Raises ClusterError, which names sudo where that is missing."""
    node.open()
    asked = time.time()
    script = fact_script(questions).encode()
    outcome = node.run(["sh", "-s"], stdin=script, root=True, deadline_seconds=FACTS_SECONDS)
    answered = time.time()
    if "section" not in outcome.text and "@@" not in outcome.text and not outcome.ok:
        said = " ".join(outcome.last_lines)
        if outcome.return_code == _NOT_FOUND and "sudo" in said:
            raise ClusterError(f"{node.name}: there is no sudo ({said}): `su -c 'apt-get install sudo'` there")
        if "sudo" in said:
            user = node.account
            file = f"010_{user.replace('.', '_')}-nopasswd"  # sudo ignores names with a dot
            raise ClusterError(
                f"{node.name}: {user} may not use sudo without a password ({said}): "
                f"`echo '{user} ALL=(ALL) NOPASSWD: ALL' | sudo tee /etc/sudoers.d/{file}` there"
            )
        raise ClusterError(
            f"{node.name}: it cannot say what it is (exit code {outcome.return_code}): {said}; "
            f"`fab deploy ssh --node {node.name}` looks at it by hand"
        )
    return read_facts(outcome.text, asked, answered)


def failure_of(name: str, error: ClusterError) -> StepFailure:
    """The record of an error that a node raised."""
    if isinstance(error, StepFailedError):
        return error.record
    said = str(error).removeprefix(name).lstrip(": ")
    return StepFailure(name, "facts", "look at the node", "", None, (said,), "")
