"""Which run goes to which node next, and what the end of its process means.

Pure: no clock, no process, no file.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from cluster.pages.files import OVER, RunRecord, SweepRecord
from cluster.sweeps.plan import PlannedRun
from cluster.sweeps.progress import LONGEST_ERROR, figures_of_node
from core.logs.terminal import one_line

log = logging.getLogger(__name__)

MOST_ENDINGS = 5
"""Times that a run's process may be killed, or end without a result; then the run failed."""
MOST_STRIKES = 3
"""Runs in a row that a node may lose this way before it gets no more, while there are others."""


@dataclass(frozen=True)
class RunExit:
    """How a run's process ended. `result` is its `result.json`, where there is one.

    `lost`: the node hung up. `description` says what it was, in one line.
    """

    result: Mapping[str, Any] | None
    description: str
    lost: bool = False
    ended_by_us: bool = False
    hopeless: bool = False
    """The process refused its settings: another attempt would too."""


class Schedule:
    """Hands out the runs of a record, and keeps the record.

    A run is with one node at a time: its lease.
    """

    def __init__(
        self, record: SweepRecord, draw: Callable[[], PlannedRun | None] = lambda: None
    ) -> None:
        """`draw()` makes the next run of a search; None where there is none, or none yet."""
        running = (run for run in record.runs if run.state == "running")
        for run in running:  # of a driver that died
            record = record.with_run(replace(run, state="waiting"))
        self.record = record
        self._draw = draw
        self._leases: dict[str, str] = {}
        self._endings: dict[str, int] = {}
        self._strikes: dict[str, int] = {}

    @property
    def open(self) -> bool:
        """Whether a run waits or is with a node."""
        return any(run.state not in OVER for run in self.record.runs)

    def leased(self, node: str) -> RunRecord | None:
        """The run that the node has."""
        return next((run for run in self.record.runs if self._leases.get(node) == run.id), None)

    def take(self, node: str, other_nodes: Collection[str] = ()) -> RunRecord | None:
        """The next run for a free node, which has it from now on; None where none waits.

        A run that the node began itself comes first: its checkpoint may be there. One that another
        of the nodes that are there (`other_nodes`) began waits for that node.
        """
        waiting = [run for run in self.record.runs if run.state == "waiting"]
        own_runs = [run for run in waiting if run.node == node]
        free = [run for run in waiting if run.node is None or run.node not in other_nodes]
        next_run = next(iter((*own_runs, *free)), None) or self._drawn()
        if next_run is None:
            return None
        self._leases[node] = next_run.id
        leased_run = replace(next_run, state="running", node=node, error=None)
        self.record = self.record.with_run(leased_run)
        return leased_run

    def _drawn(self) -> RunRecord | None:
        planned = self._draw()
        if planned is None:
            return None
        return RunRecord(planned.id, planned.settings, planned.seed)

    def ended(self, node: str, ending: RunExit, seconds: float, folder: str | None) -> RunRecord:
        """The node's run after its process ended, `seconds` after it began there."""
        run = self._returned(node, seconds)
        run = replace(run, folder=folder or run.folder)
        result = ending.result or {}
        status = result.get("status")
        if status == "done":
            final, selected = (figures_of_node(result.get(key)) for key in ("final", "selected"))
            selected = {
                key: value
                for key, value in selected.items()
                if key != "epoch" and value is not None
            }
            changed = replace(run, state="finished", final=final, selected=selected or None)
            self._strikes[node] = 0
        elif status == "failed" and not ending.lost:
            changed = _failed(run, str(result.get("reason") or ending.description))
        elif ending.hopeless:
            changed = _failed(run, ending.description)
        else:
            changed = self._interrupted(node, run, ending)
        self.record = self.record.with_run(changed)
        return changed

    def pruned(self, node: str, seconds: float, why: str) -> RunRecord:
        """The node's run, which the search ended early."""
        changed = replace(_failed(self._returned(node, seconds), why), state="pruned")
        self.record = self.record.with_run(changed)
        return changed

    def _returned(self, node: str, seconds: float) -> RunRecord:
        """The run that the node has no more, with the seconds it spent on it."""
        leased = self._leases.pop(node)
        run = next(run for run in self.record.runs if run.id == leased)
        return replace(run, seconds=round(run.seconds + seconds, 3))

    def gone(self, node: str) -> None:
        """The node is there no more: what it began may go elsewhere."""
        for run in self.record.runs:
            if run.state == "waiting" and run.node == node:
                self.record = self.record.with_run(replace(run, node=None))

    def is_set_aside(self, node: str, nodes: int) -> bool:
        """Return whether the node lost too many runs in a row to get another.

        It is one of `nodes` that are there; the only one is never set aside.
        """
        return nodes > 1 and self._strikes.get(node, 0) >= MOST_STRIKES

    def _interrupted(self, node: str, run: RunRecord, ending: RunExit) -> RunRecord:
        if ending.ended_by_us:
            return replace(run, state="waiting")
        if ending.lost:
            return replace(run, state="waiting", node=None)
        self._strikes[node] = self._strikes.get(node, 0) + 1
        count = self._endings[run.id] = self._endings.get(run.id, 0) + 1
        if count >= MOST_ENDINGS:
            message = (
                f"its process ended {count} times without a result, at last: {ending.description}"
            )
            return _failed(run, message)
        return replace(
            run, state="waiting", node=node if self._strikes[node] < MOST_STRIKES else None
        )


def _failed(run: RunRecord, why: str) -> RunRecord:
    return replace(run, state="failed", error=one_line(why)[:LONGEST_ERROR])
