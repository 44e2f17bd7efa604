"""`fab forecast` against clusters of limited workers: fitted to a few, compared with more.

Role processes are real. The kernel holds each worker to a share of a core
(`benchmarks.beds.cpu_quota`), but neither parameter server nor coordinator.
"""

import sys
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.beds.cpu_quota import limited, period_of, why_not
from benchmarks.report import arguments, publish, tell
from benchmarks.scaling import recordings
from cluster.forecast.costs import MeasuredCosts, RolesRun
from cluster.forecast.outlook import Assumptions, outlooks
from core.inventory.extensions import MODES
from deploy.forecast.roles import ENDLESS, measured_roles

BATCH = 100
LOCAL = Assumptions(
    link=1e6, latency=0.0, failures=0.0, recovery=0.0, watts=0.0, pc_watts=0.0, price=0.0
)
"""Everything is on one machine."""


@dataclass(frozen=True)
class Plan:
    """What is measured, for so many seconds each; the forecast sees up to `fitted` workers."""

    workers: tuple[int, ...]
    fitted: int
    share: float
    windows: int
    seconds: float


PLANS = {
    "full": Plan((1, 2, 4, 8, 16), 4, 0.05, 16_000, 8.0),
    "quick": Plan((1, 2, 4, 8), 4, 0.1, 4_000, 5.0),
    "smoke": Plan((1, 2), 1, 0.4, 800, 1.0),
}


def measure(plan: Plan, mode: str, source: Path, workers: int) -> RolesRun:
    """Train on so many limited workers."""

    def slowed(processes: Any) -> AbstractContextManager[None]:
        shares = {pid: plan.share for name, pid in processes.items() if name.startswith("worker")}
        return limited(shares, period_of(plan.share))

    settings = (
        f"jobs.train.mode={mode}",
        f"jobs.train.batch_size={BATCH}",
        f"jobs.train.data.source={source}",
        *ENDLESS,
    )
    run = measured_roles(settings, (), workers, 1, slowed, plan.seconds)
    tell(f"{mode}, {workers} workers: {run.updates} updates in {run.seconds:.1f} s")
    return run


def costs_of(mode: str, runs: Sequence[RolesRun]) -> MeasuredCosts:
    """Return the costs of these runs. A quota is one of processor time, whatever the cores."""
    facts = MODES[mode]
    return MeasuredCosts(
        app="thesis",
        mode=mode,
        codec="fp32",
        options={} if facts.Options is None else facts.Options().model_dump(mode="json"),
        processor="limited",
        cores=1,
        servers=1,
        batch_size=BATCH,
        epochs=1,
        single_seconds=1.0,
        runs=tuple(runs),
    )


def compare(costs: MeasuredCosts, largest: int) -> list[dict[str, Any]]:
    """Return a row for each run: measured windows a second, and those of the forecast."""
    counts = [run.workers for run in costs.runs]
    expected = outlooks(costs, None, counts, LOCAL, largest)
    rows = []
    for run, outlook in zip(costs.runs, expected, strict=True):
        measured = costs.windows * run.updates / run.seconds
        rows.append(
            {
                "mode": costs.mode,
                "workers": run.workers,
                "seen": run.workers <= largest,
                "windows_per_second": measured,
                "forecast": outlook.windows_a_second,
                "error": outlook.windows_a_second / measured - 1.0,
                "limit": outlook.limit,
                "calls_an_update": costs.scale(run) if costs.in_parts else 1.0,
                "spread": costs.alone.spread,
                "run": asdict(run),
            }
        )
    return rows


def main() -> None:
    """Measure and print the object; status 1 with one line where no quota can be set."""
    parser = arguments(
        "forecast", "`fab forecast`, fitted to 1, 2 and 4 workers, against 8 and 16."
    )
    parser.add_argument("--mode", action="append", help="async, sync or local (repeatable); async")
    given = parser.parse_args()
    problem = why_not()
    if problem:
        sys.exit(f"benchmarks.forecast: {problem}")
    plan = PLANS[given.size]
    rows = []
    with tempfile.TemporaryDirectory(prefix="pscluster-benchmark-") as folder:
        source = Path(folder, "noise.npz")
        recordings(source, plan.windows)
        for mode in given.mode or ["async"]:
            run = partial(measure, plan, mode, source)
            rows += compare(costs_of(mode, [run(workers) for workers in plan.workers]), plan.fitted)
            for row in rows[-len(plan.workers) :]:
                tell(
                    f"{mode}, {row['workers']} workers: {row['windows_per_second']:,.0f} windows/s,"
                    f" forecast {row['forecast']:,.0f} ({row['error']:+.0%})"
                )
    unseen = [abs(row["error"]) for row in rows if not row["seen"]]
    publish("forecast", rows, {"largest_error": max(unseen)}, given)


if __name__ == "__main__":
    main()
