"""`python -m cluster.forecast`: the forecast of a training from a file of costs, for `fab`."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path

from cluster.forecast.costs import MeasuredCosts, entry_of
from cluster.forecast.outlook import Assumptions, OnePc, Outlook, one_pc, outlooks
from core.ground.errors import ClusterError, ExitCode
from core.logs import say, say_json
from core.logs.lines import duration


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the forecast; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m cluster.forecast", description=__doc__)
    parser.add_argument("costs", type=Path)
    parser.add_argument("--nodes", required=True, help="numbers with commas between them")
    for name in ("app", "mode", "codec"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--servers", type=int)
    for assumption in fields(Assumptions):
        parser.add_argument(f"--{assumption.name.replace('_', '-')}", type=float, required=True)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    try:
        costs = entry_of(options.costs, options.app, options.mode, options.codec)
        assumed = Assumptions(*(getattr(options, each.name) for each in fields(Assumptions)))
        counts = [int(count) for count in options.nodes.split(",")]
        rows = outlooks(costs, options.servers, counts, assumed)
    except ClusterError as problem:
        say(str(problem), error=True)
        return problem.exit_code
    servers = options.servers or costs.servers
    pc = one_pc(costs, assumed)
    if options.json:
        say_json(
            {
                "schema": 1,
                "app": costs.app,
                "mode": costs.mode,
                "codec": costs.codec,
                "servers": servers,
                "assumed": asdict(assumed),
                "one_pc": asdict(pc),
                "nodes": [asdict(row) for row in rows],
            }
        )
    else:
        say("\n".join(lines(costs, servers, assumed, pc, rows)))
    return ExitCode.DONE


HEADER = (*("nodes", "windows/s", "efficiency", "time", "limit", "watts", "euros", "by", ""),)


def lines(
    costs: MeasuredCosts, servers: int, assumed: Assumptions, pc: OnePc, rows: Sequence[Outlook]
) -> list[str]:
    """Return the forecast as lines for people."""
    cells = [
        (
            f"{row.nodes:,}",
            f"{row.windows_a_second:,.0f}",
            f"{row.efficiency:.0%}",
            duration(row.seconds),
            row.limit,
            f"{row.watts:,.0f}",
            f"{row.euros:,.4f}",
            "simulation" if row.simulated else "bound",
            "extrapolated" if row.extrapolated else "",
        )
        for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(HEADER, *cells, strict=True)]
    table = [
        "  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (HEADER, *cells)
    ]
    measured = ", ".join(str(run.workers) for run in costs.runs)
    return [
        (
            f"{costs.app}: mode {costs.mode}, codec {costs.codec}, {servers} parameter"
            f" server{'s' * (servers > 1)}, {costs.epochs} epochs of {costs.updates_an_epoch:,}"
            f" updates; measured on {costs.processor} with {measured} workers"
        ),
        (
            f"assumed: links of {assumed.link:g} Mbit/s and"
            f" {assumed.latency:g} ms, {assumed.failures:g} failures of a"
            f" node a day, {assumed.watts:g} W a node,"
            f" {assumed.price:g} EUR/kWh"
        ),
        (
            f"one PC like that in mode single: {pc.windows_a_second:,.0f} windows/s,"
            f" {duration(pc.seconds)}, {pc.watts:g} W, {pc.euros:,.4f} EUR"
        ),
        *table,
    ]


if __name__ == "__main__":
    sys.exit(main())
