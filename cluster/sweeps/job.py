"""The job `sweep`: many trainings of one file, one a node or one after the other over all.

This process loads no TensorFlow: it stays beside the runs for hours, on a node of 1 GB.
"""

import json
import logging
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cluster.jobs.lifecycle import Job, JobContext
from cluster.jobs.run_folder import RunFolder, is_finished
from cluster.pages.files import FILE, OVER, RunRecord, SweepRecord, SweepState, read_sweep
from cluster.programs.process import end_marked
from cluster.sweeps.drive import ClusterLost, Drive
from cluster.sweeps.executors import places_of
from cluster.sweeps.plan import (
    Schedule,
    base_overrides,
    fingerprint,
    is_setting,
    overrides_of,
    planned_runs,
)
from cluster.sweeps.progress import (
    best_of,
    csv_of,
    in_words,
    picture_of,
    text_table,
)
from cluster.sweeps.sweep_file import SweepFile, axes_of, read_sweep_file
from cluster.sweeps.trials import Trials
from core.ground.errors import ClusterError, ExitCode, UsageError
from core.ground.files import atomic_write, read_json
from core.status import events
from core.web.sections import aligned_lines

log = logging.getLogger(__name__)

PLAN = "plan.json"
COPY = "sweep.yaml"
TABLE = "table.csv"
MOVE_SECONDS = 2.0
LOOKED_AT = 50
"""Sweeps, the newest ones, among which an unfinished one of the same file is looked for."""
MOST_OF_A_PLAN = 1_000_000
"""Characters. The plan of 2,000 runs has fewer."""


class RunsFailed(ClusterError):
    """Some runs of the sweep failed; the others have their results."""


@dataclass(frozen=True)
class SweepInput:
    """What to sweep: the file and what it says, overrides of this call, flags for each run."""

    sweep: SweepFile
    file: Path
    overrides: Sequence[str]
    flags: Sequence[str] = ()


class SweepRun(Job):
    """One sweep, or what is left of one."""

    name = "sweep"
    unit = "runs"

    def __init__(self, context: JobContext, order: SweepInput) -> None:
        super().__init__(context)
        self._order = order
        self.sweep = order.sweep
        self.record: SweepRecord | None = None
        self._over = False
        self._drive: Drive
        self._moved_at = 0.0
        self._folder = Path()

    def prepare(self) -> None:
        """Find the sweep to resume. Raises UsageError where its file is another one."""
        self._base = [
            argument
            for argument in base_overrides(self.sweep, self._order.overrides)
            if is_setting(argument)
        ]
        # One whose driver was killed before it had written anything begins again.
        if self.resumed is not None and (self.resumed / FILE).exists():
            self.record = replace(read_sweep(self.resumed), state="running")
            self._base = _stored_base(self.resumed, self.sweep)
        elif self.resumed is None:
            self._say_unfinished(Path(self.inventory.runs))

    def _say_unfinished(self, runs: Path) -> None:
        """Name the newest sweep of the same runs, if a person may have meant to resume it."""
        for plan in sorted(runs.glob(f"*-sweep*/{PLAN}"), reverse=True)[:LOOKED_AT]:
            try:
                with plan.open(errors="replace") as stream:
                    same = fingerprint(self.sweep) in stream.read(MOST_OF_A_PLAN)
            except OSError:  # another account's
                continue
            if same:
                if not is_finished(plan.parent):
                    self.display.say(
                        f"{plan.parent} has the same runs and is unfinished: --resume would"
                        " continue it"
                    )
                return

    def run(self, folder: RunFolder) -> None:
        """Train every run that is not over.

        Raises RunsFailed, and ClusterLost when the roles must restart.
        """
        self._folder = folder.path
        mark = str(folder.path.resolve())
        end_marked(mark)  # of a driver that was killed
        record = self.record = self.record or self._begun(folder.path)
        self.metrics.serve(self.inventory.task("coordinator", 0))
        trials = None
        if self.sweep.search is not None:
            trials = Trials(self.sweep.search, folder.path, self.sweep.seeds[0], record.runs)
        schedule = Schedule(record, trials)
        if self.app is None:
            app = None
        else:
            app = self.app.copy
        places = places_of(self.inventory, self.sweep.placement, mark, app)
        drive = self._drive = Drive(schedule, places, folder.path, self)
        self.stream.emit(events.StageBegan("sweep", self.sweep.run_count, "runs"))
        last = True
        try:
            places.gather(lambda: self.cancel.asked)
            self._over = drive.run(lambda: self.cancel.asked)
        except ClusterLost:
            last = False
            raise
        finally:
            end_marked(mark)
            places.close(last=last)
        self._finish(schedule.record)

    def complete(self) -> bool:
        """Whether every run is over."""
        return self._over

    def result(self) -> dict[str, Any]:
        """Counts; `sweep.json` beside it has the runs."""
        record = self.record
        return {
            **super().result(),
            "sweep": record and record.name,
            "placement": record and record.placement,
            "runs": record and record.counts(),
        }

    def _begun(self, folder: Path) -> SweepRecord:
        """The record of a new sweep, with its plan and its file beside it."""
        sweep = self.sweep
        plan = {"schema": 1, "fingerprint": fingerprint(sweep), "base": self._base}
        atomic_write(folder / PLAN, json.dumps(plan, indent=1).encode() + b"\n")
        atomic_write(folder / COPY, self._order.file.read_bytes())
        runs = planned_runs(sweep)
        record = SweepRecord(
            sweep.name,
            folder.name,
            "running",
            sweep.placement,
            sweep.seeds,
            axes_of([run.settings for run in runs]),
            runs,
        )
        record.write(folder)
        return record

    def arguments_of(self, run: RunRecord) -> Sequence[str]:
        """The arguments of a run's training, whose inventory and app its place names."""
        cluster = [argument for argument in self._order.overrides if not is_setting(argument)]
        if self.sweep.placement == "node":
            cluster.append("page.listen=off")
        own_overrides = overrides_of(self._base, self.sweep.placement, run.settings, run.seed)
        settings = [word for argument in (*cluster, *own_overrides) for word in ("--set", argument)]
        return [*settings, "--quiet", *self._order.flags]

    def changed(self, record: SweepRecord) -> None:
        """Write the record, and show it."""
        self.record = record
        record.write(self._folder)
        self.stream.emit(events.Advanced(sum(run.state in OVER for run in record.runs)))
        self.looked(within_seconds=0.0)

    def loses_the_cluster(self, code: int) -> bool:
        """Whether a training over all nodes that ended so leaves its variables on the servers."""
        killed = code < 0 or code == ExitCode.SERVER_LOST
        return killed and self.sweep.placement == "cluster"

    def looked(self, within_seconds: float = MOVE_SECONDS) -> None:
        """Emit now and then how the runs stand, for metrics and page."""
        if self.record is None or time.monotonic() - self._moved_at < within_seconds:
            return
        self._moved_at = time.monotonic()
        shares = {
            lease.run.id: lease.progress.done / lease.progress.total
            for lease in self._drive.leases.values()
            if lease.progress is not None and lease.progress.total
        }
        self.stream.emit(
            events.SweepMoved(picture_of(self.record, shares, self._drive.seconds_left()))
        )

    def run_over(self, run: RunRecord) -> None:
        """Say how the run ended."""
        description = ", ".join(filter(None, (in_words(run.settings), f"seed {run.seed}")))
        accuracy = (run.final or {}).get("accuracy")
        came = run.error or run.state
        if accuracy is not None:
            came = f"accuracy {accuracy:.4f}"
        self.display.say(
            f"run {run.id} {run.state} on {run.node} in {run.seconds:.0f} s ({description}): {came}"
        )

    def _finish(self, record: SweepRecord) -> None:
        """The table, and the state of the whole."""
        counts = record.counts()
        state: SweepState = "finished"
        if not self._over:
            state = "cancelled"
        elif counts["failed"]:
            state = "failed"
        self.record = final_record = replace(record, state=state)
        atomic_write(self._folder / TABLE, csv_of(final_record).encode())
        final_record.write(self._folder)
        heads, *rows = text_table(final_record)
        for line in aligned_lines(heads, rows):
            self.display.say(line)
        search = self.sweep.search
        if search is not None and (best := best_of(final_record, search)) is not None:
            value = (best.selected or {})[search.metric]
            self.display.say(f"best on the validation: run {best.id}, {search.metric} {value:.4f}")
        if state == "failed":
            first = next(run for run in record.runs if run.state == "failed")
            raise RunsFailed(
                f"{counts['failed']} of {len(record.runs)} runs failed; run {first.id}:"
                f" {first.error}"
            )


def _stored_base(folder: Path, sweep: SweepFile) -> list[str]:
    """The settings of every run of the sweep in this folder.

    Raises UsageError where the file is another one's.
    """
    path = folder / PLAN
    try:
        plan = read_json(path)
        base = [str(argument) for argument in plan["base"]]
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise UsageError(
            f"{path}: expected what `fab sweep` writes, got {type(problem).__name__}: {problem}"
        ) from None
    if fingerprint(read_sweep_file(folder / COPY)) != fingerprint(sweep):
        raise UsageError(
            f"{sweep.file}: has other runs than the sweep in {folder}: `fab sweep"
            f" {shlex.quote(str(folder / COPY))} --resume --run {shlex.quote(str(folder))}` resumes"
            " that one; without --resume a new one begins"
        )
    return base
