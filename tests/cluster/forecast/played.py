"""Costs of trainings that never were, in round numbers."""

from dataclasses import replace
from typing import Any

from cluster.forecast.costs import MeasuredCosts, RolesRun
from cluster.forecast.outlook import Assumptions
from core.inventory.extensions import MODES

UPDATES = 100
OF_RUNS = ("slots", "updates_an_epoch", "spread")
ASSUMED = Assumptions(
    link=80.0, latency=0.0, failures=0.0, recovery=60.0, watts=5.0, pc_watts=50.0, price=0.3
)
"""A link of ten megabytes a second."""


def run(workers: int) -> RolesRun:
    """A run whose coordinator takes 2 ms and 1 ms a worker, and its server 1 ms and 1 ms a worker.

    One worker takes a tenth of a second an update beside them.
    """
    return RolesRun(
        workers,
        UPDATES,
        UPDATES * (0.1 + 0.003 + 0.002) / workers,
        UPDATES * (0.002 + 0.001 * workers),
        UPDATES * (0.001 + 0.001 * workers),
        UPDATES * 0.1,
        UPDATES * 10_000.0,
        UPDATES * 20_000.0,
        slots=32,
        updates_an_epoch=100_000,
        spread=0.0,
    )


def costs(mode: str = "async", **changes: Any) -> MeasuredCosts:
    """The costs of a training in this mode, measured on 1, 2 and 4 workers."""
    options = MODES[mode].Options
    usual = MeasuredCosts(
        app="digits",
        mode=mode,
        codec="fp32",
        options={} if options is None else options().model_dump(mode="json"),
        processor="a processor",
        cores=4,
        servers=1,
        batch_size=100,
        epochs=2,
        single_seconds=0.2,
        runs=tuple(run(workers) for workers in (1, 2, 4)),
    )
    if usual.in_parts:
        parts = tuple(
            replace(each, sent_bytes=each.sent_bytes * each.workers) for each in usual.runs
        )
        usual = replace(usual, runs=parts)
    of_runs = {name: changes.pop(name) for name in OF_RUNS if name in changes}
    usual = replace(usual, **changes)
    return replace(usual, runs=tuple(replace(run, **of_runs) for run in usual.runs))
