"""`fab deploy logs` for `connection: local`: the logs of supervisor, roles and coordinator as one story."""

import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.errors import UsageError
from cluster.logs.terminal import say
from deploy.cluster.selection import select
from deploy.logs.coordinator_log import CoordinatorLog
from deploy.logs.log_merge import LOOK_BACK_LINES, Interleaver, Shown, Source, in_order, with_beginning
from deploy.logs.log_reader import POLL_SECONDS, Follower, Log
from deploy.logs.since import since as seconds_of

if TYPE_CHECKING:
    from cluster.inventory import Inventory
    from deploy.cluster.services import Services

SUPERVISOR = "supervisor"


def logs(
    inventory: "Inventory",
    services: "Services",
    roles: Sequence[str],
    nodes: Sequence[str],
    count: int,
    since: str | None,
    run: str | None,
    follow: bool,
    for_programs: bool,
) -> None:
    """Show the last lines of all logs together by their own times; with `follow` go on with what comes."""
    first = 0.0 if since is None else seconds_of(since, datetime.now().astimezone())
    run = Path(run).name if run else ""
    wanted = _wanted(inventory, roles, nodes)
    coordinator = CoordinatorLog(Path(inventory.runs), "coordinator:0", run)
    every: list[Log] = [*services.logs(), coordinator]
    chosen = [log for log in every if log.name in wanted]
    shown = Shown(max(len(log.name) for log in chosen), run, for_programs, first)
    sources = {log.name: Source(log.name, run if log is coordinator else "") for log in chosen}
    follower = Follower(chosen)
    # Of a run or of a time, which lines count is known only when they are read.
    wanted_lines = 1_000_000 if run or since else count
    entries = [
        entry
        for end in follower.ends(wanted_lines + LOOK_BACK_LINES)
        for entry in sources[end.name].place_last(with_beginning(end.lines, wanted_lines), end.written)
    ]
    told = [entry for entry in in_order(entries) if shown.wants(entry)]
    if run and not told and not follow:
        newest = ", ".join(coordinator.newest_runs(3))
        remedy = f"give one such as {newest}" if newest else "there is no run here: leave --run out"
        raise UsageError(f"--run {run}: expected a run that the logs name, found no line of it; {remedy}")
    if count and told:
        say("\n".join(map(shown.render, told[-count:])))
    if not follow:
        return
    waiting = Interleaver()
    while True:
        for name, line in follower.new_lines():
            waiting.put(sources[name].place(line, time.time()), time.monotonic())
        for entry in waiting.take(time.monotonic()):
            if shown.wants(entry):
                say(shown.render(entry))
        time.sleep(POLL_SECONDS)


def _wanted(inventory: "Inventory", roles: Sequence[str], nodes: Sequence[str]) -> set[str]:
    """Names of the logs; `supervisor` is one beside those of the tasks."""
    others = [name for name in roles if name != SUPERVISOR]
    wanted = {SUPERVISOR} if not nodes and (not roles or len(others) < len(roles)) else set()
    if others or nodes or not roles:
        wanted |= {task.name for task in select(list(inventory.tasks()), others, nodes)}
    return wanted
