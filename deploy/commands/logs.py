"""`fab deploy logs`: the logs of a cluster, merged by time."""

from pathlib import Path

from core.ground.errors import UsageError
from core.logs import say
from deploy.cluster.services import DegradedError
from deploy.commands.action import takes
from deploy.commands.flags import JsonFlags, RoleFlags, number, path, switch, text, time_from_now
from deploy.commands.opening import open_cluster
from deploy.common.interrupts import waiting_for

MOST_LINES_SHOWN = 1_000_000


USUAL_LINES = 20


class LogsFlags(RoleFlags, JsonFlags):
    """The flags of `deploy logs`."""

    lines: int | None = number(
        "number of last lines (20, or all with --since and --run)", 0, MOST_LINES_SHOWN
    )
    since: float | None = text(
        "only lines since a time, e.g. '10 min ago', 'today' or '22:45'", read=time_from_now
    )
    run: str | None = path("folder or name of the run whose lines are shown")
    follow: bool = switch("also show later lines until Ctrl-C")

    @property
    def run_name(self) -> str:
        """The name of the run whose lines are wanted, empty for those of all runs."""
        if self.run:
            return Path(self.run).name
        return ""


@takes(LogsFlags)
def logs(flags: LogsFlags) -> None:
    """Show the logs of all roles and of the coordinator by time; --follow shows later lines."""
    run = flags.run_name
    first = flags.since or 0.0
    count = flags.lines
    if count is None and (first or run):
        count = MOST_LINES_SHOWN  # all lines of the time or the run that is asked for
    elif count is None:
        count = USUAL_LINES
    opened = open_cluster(flags, as_written=True)
    places = opened.cluster.services.logs()
    from deploy.cluster.fleet import split_errors
    from deploy.logs import (
        MOST_LINES,
        ClusterLogs,
        LogDisplay,
        LogQuery,
        chosen_places,
        in_order,
        newest_runs,
    )
    from deploy.logs.sources import Entry

    query = LogQuery(MOST_LINES if run else count, first, run)
    cluster_logs = ClusterLogs(
        chosen_places(places, opened.inventory.tasks(), flags.role, flags.node), query
    )
    display = LogDisplay(cluster_logs.width, run, flags.json_, first)

    def show(entry: Entry) -> None:
        if display.wants(entry):
            say(display.render(entry))

    with opened.cluster.fleet() as fleet:
        # Files of this machine take no time.
        with waiting_for("reading the logs", quiet=not cluster_logs.has_journals):
            last = cluster_logs.last(fleet, flags.follow)
        read, errors = split_errors(last)
        all_entries = [entry for entries in read.values() for entry in entries]
        matching = [entry for entry in in_order(all_entries) if display.wants(entry)]
        if run and not matching and not flags.follow and not errors:
            remedy = "there is no run here: leave --run out"
            newest = newest_runs(places, fleet)
            if newest:
                remedy = f"give one such as {', '.join(newest)}"
            raise UsageError(
                f"--run {run}: expected a run that the logs name, found no line of it; {remedy}"
            )
        if count and matching:
            say("\n".join(map(display.render, matching[-count:])))
        if flags.follow:
            cluster_logs.follow(fleet, show)
    if errors:
        raise DegradedError("\n".join(map(str, errors.values())))
