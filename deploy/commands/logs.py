"""`fab deploy logs`: the lines of all roles and of the coordinator, merged by time."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cluster.errors import ClusterError, UsageError
from cluster.logs.terminal import say
from deploy.cluster.services import DegradedError
from deploy.commands.edge import takes
from deploy.commands.flags import Flags, whole_number
from deploy.commands.opening import open_cluster
from deploy.common.waiting import waiting_for

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_AGO = re.compile(
    r"-?\s*(?P<count>\d{1,9})\s*(?P<unit>s|sec|seconds?|m|min|minutes?|h|hours?|d|days?|w|weeks?)(?P<ago>\s+ago)?"
)
_MONTHS = re.compile(r"\d\s*M\b")
"""Months in journalctl: refused, because a person who means minutes would get them, or the other way round."""
_TIMES = ("%H:%M", "%H:%M:%S")

_RUN_SLACK_SECONDS = 86400.0
"""How far a node's clock may be behind that of the coordinator, which names the run."""


@takes("inventory set_ role node lines since run follow json_")
def logs(flags: Flags) -> None:
    """The logs of all roles and of the coordinator, merged by time; with --follow every later line too."""
    # All lines of the time or the run that is asked for.
    since = flags.since
    count = whole_number("--lines", flags.lines or ("1_000_000" if since or flags.run else "20"), 0, 1_000_000)
    first = 0.0 if since is None else seconds_of(since, datetime.now().astimezone())
    run = Path(flags.run).name if flags.run else ""
    opened = open_cluster(flags, as_written=True)
    places = opened.cluster.services.logs()
    from deploy.logs.log_merge import Entry, Shown, in_order
    from deploy.logs.log_reader import MOST_LINES, ClusterLogs, LogQuery, chosen, newest_runs

    query = LogQuery(MOST_LINES if run else count, first, run, not_before(run))
    found = ClusterLogs(chosen(places, opened.inventory.tasks(), flags.role, flags.node), query)
    shown = Shown(found.width, run, flags.json_, first)

    def show(entry: Entry) -> None:
        if shown.wants(entry):
            say(shown.render(entry))

    with opened.cluster.fleet() as fleet:
        # Files of this machine take no time.
        with waiting_for("reading the logs", quiet=not found.has_journals):
            last = found.last(fleet, flags.follow)
        errors = [str(result) for result in last.values() if isinstance(result, ClusterError)]
        known = [entry for result in last.values() if not isinstance(result, ClusterError) for entry in result]
        wanted = [entry for entry in in_order(known) if shown.wants(entry)]
        if run and not wanted and not flags.follow and not errors:
            newest = ", ".join(newest_runs(places, fleet))
            remedy = f"give one such as {newest}" if newest else "there is no run here: leave --run out"
            raise UsageError(f"--run {run}: expected a run that the logs name, found no line of it; {remedy}")
        if count and wanted:
            say("\n".join(map(shown.render, wanted[-count:])))
        if flags.follow:
            found.follow(fleet, show)
    if errors:
        raise DegradedError("\n".join(errors))


def not_before(run: str) -> float:
    """A time before every line of the run, by its name; 0 for a name that does not begin with one."""
    try:
        begun = datetime.strptime(run.partition("-")[0], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        return 0.0
    return max(0.0, begun.timestamp() - _RUN_SLACK_SECONDS)


def seconds_of(since: str, now: datetime) -> float:
    """`--since` in seconds since the epoch: `10 min ago`, `-2h`, `today`, `22:45`, `2026-11-21 22:45`, ISO 8601.

    A time without a zone is this machine's, as `now` is. No node gets the text: its zone may differ, and journalctl 252
    refuses `2026-11-21T22:45:01Z`. Raises UsageError for anything else.
    """
    words = since.strip().lower()
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    named = {"now": now, "today": midnight, "yesterday": midnight - timedelta(days=1)}
    if words in named:
        return named[words].timestamp()
    ago = _AGO.fullmatch(words)
    if ago and (ago["ago"] or words.startswith("-")) and not _MONTHS.search(since):
        return now.timestamp() - int(ago["count"]) * _SECONDS[ago["unit"][0]]
    for form in _TIMES:
        try:
            found = datetime.strptime(words, form)
        except ValueError:
            continue
        return midnight.replace(hour=found.hour, minute=found.minute, second=found.second).timestamp()
    try:
        given = datetime.fromisoformat(words.removesuffix(" utc").upper())
        return (given.replace(tzinfo=UTC) if words.endswith(" utc") else given).timestamp()
    except (ValueError, OverflowError):
        raise UsageError(
            f"--since: expected a time such as '10 min ago', 'today', '22:45' or '2026-11-21 22:45', got {since!r}"
        ) from None
