"""What a deployment finds and does, without packages and systemd.

A node's state is the files in a folder of its own.

Connections, phases, quorum and recap are the real ones; a change is done by a script on the node
that leaves its file.
"""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from deploy.converge import deployment
from deploy.converge.apply import StepFailure, Survey
from deploy.converge.deployment import PHASES, DeploymentPlan, DeploymentRequest, Desired
from deploy.converge.desired import Machines
from deploy.converge.subject import Change, Shell

KINDS = {"prepare": "file", "code": "link", "services": "unit"}
"""What each node needs, by phase."""


class PlayedNodes:
    """Every node lacks everything at first.

    `unreached` are those that the coordinator's node does not reach.
    """

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self.unreached: list[str] = []
        patch.setattr(deployment, "survey_and_plan", self._look)
        patch.setattr(deployment, "unreachable", self._unreachable)
        patch.setattr(deployment, "_verify", lambda *_: None)
        patch.setattr(Machines, "tidy", lambda *_: [])

    def break_down(self, node: str, phase: str) -> None:
        """From now on the node fails there."""
        self._file(node, phase, "broken").touch()

    def mend(self, node: str, phase: str) -> None:
        """And now no more."""
        self._file(node, phase, "broken").unlink()

    def forget(self, node: str, phase: str) -> None:
        """The node differs once more."""
        self._file(node, phase, "done").unlink()

    def done(self, node: str) -> list[str]:
        """Phases that are complete."""
        return [phase for phase in KINDS if self._file(node, phase, "done").exists()]

    def _file(self, node: str, phase: str, what: str) -> Path:
        return self._folder / f"{node}.{phase}.{what}"

    def _change(self, node: str, phase: str, kind: str) -> Change:
        broken, done = (
            shlex.quote(str(self._file(node, phase, what))) for what in ("broken", "done")
        )
        script = f"[ ! -e {broken} ] || {{ echo the disk is full >&2; exit 1; }}; touch {done}"
        steps = (Shell(f"do {phase}", script),)
        return Change(kind, phase, "restart", "for a test", steps, runs_jobs=phase != "prepare")

    def _look(
        self, _fleet: Any, desired: Desired, order: DeploymentRequest, _tell: Any
    ) -> DeploymentPlan:
        plans: dict[str, dict[str, tuple[Change, ...]]] = {phase: {} for phase in PHASES}
        for phase, kind in KINDS.items():
            for node in (
                order.names
                if phase != "prepare"
                else desired.nodes_to_ask(order.names, order.phases)
            ):
                missing = not self._file(node, phase, "done").exists()
                if missing:
                    plans[phase][node] = (self._change(node, phase, kind),)
                else:
                    plans[phase][node] = ()
        return DeploymentPlan(desired, Survey({}, {}), {}, plans)

    def _unreachable(
        self, _inventory: Any, _fleet: Any, names: Sequence[str], _lost: Any
    ) -> list[StepFailure]:
        failed = [name for name in self.unreached if name in names]
        return [StepFailure(name, "verify", "reach the roles", ("no route",)) for name in failed]
