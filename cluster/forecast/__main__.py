"""`python -m cluster.forecast REQUEST`: the forecast of a training, for `fab forecast`."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from cluster.forecast.costs import entry_of
from cluster.forecast.outlook import Assumptions, Outlook, one_pc, outlooks
from core.ground.errors import ClusterError, ExitCode
from core.ground.files import parsed_json
from core.logs import say, say_json
from core.logs.lines import duration


def main(request_text: str) -> int:
    """Print the forecast that a request of `fab` asks for; returns the exit code."""
    request = parsed_json(request_text)
    assumed = Assumptions(**request["assumed"])
    try:
        costs = entry_of(Path(request["costs"]), *request["entry"])
        outlook = outlooks(costs, request["servers"], request["nodes"], assumed)
    except ClusterError as problem:
        say(str(problem), error=True)
        return problem.exit_code
    pc = one_pc(costs, assumed)
    if request["json"]:
        rows = [asdict(row) for row in outlook]
        entry = {"app": costs.app, "mode": costs.mode, "codec": costs.codec}
        say_json({"schema": 1, **entry, "assumed": asdict(assumed), "one_pc": pc, "nodes": rows})
        return ExitCode.DONE
    say(
        f"{costs.app}: mode {costs.mode}, codec {costs.codec}, {costs.epochs} epochs of"
        f" {costs.alone.updates_an_epoch:,} updates, measured on {costs.processor}\n"
        f"one such machine in mode single: {pc['windows_a_second']:,.0f} windows/s,"
        f" {duration(pc['seconds'])}, {pc['watts']:g} W, {pc['euros']:,.4f} EUR"
    )
    say("\n".join(lines(outlook)))
    return ExitCode.DONE


HEADER = ("nodes", "windows/s", "efficiency", "time", "limit", "watts", "euros", "by", "")


def lines(outlook: Sequence[Outlook]) -> list[str]:
    """Return the forecast as a table for people."""
    rows = [HEADER]
    for row in outlook:
        rows.append(
            (
                f"{row.nodes:,}",
                f"{row.windows_a_second:,.0f}",
                f"{row.efficiency:.0%}",
                duration(row.seconds),
                row.limit,
                f"{row.watts:,.0f}",
                f"{row.euros:,.4f}",
                row.by,
                "extrapolated" * row.extrapolated,
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.rjust, row, widths)).rstrip() for row in rows]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
