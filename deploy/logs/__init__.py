"""The logs of a cluster: chosen, read through the connectors of their nodes, and followed.

Lines of several logs are merged by time, those of one run selected, then rendered: that is pure.
"""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from core.ground.errors import ClusterError
from core.ground.files import parsed_json
from core.ground.waiting import pause
from core.logs import as_ascii, one_line, visible
from core.logs.lines import LogLine, read_line, whole_milliseconds
from deploy.cluster.connector import CommandResult, Connector
from deploy.cluster.fleet import Fleet
from deploy.cluster.services import LogPlace, select
from deploy.common.command_line import shell
from deploy.logs.sources import (
    Entry,
    FileLog,
    Journal,
    fixed,
    log_of_latest_job,
    log_of_latest_run,
    log_of_run,
)

if TYPE_CHECKING:
    from core.inventory import Task


HOLD_SECONDS = 0.5
"""A new line waits this long for older ones that arrive later."""


def in_order(entries: Iterable[Entry]) -> list[Entry]:
    """Sort entries by time; those of one log with the same time stay together."""
    return sorted(entries, key=lambda entry: entry.seconds)


class Interleaver:
    """Sorts lines that arrive from several places, as far as a wait of `hold_seconds` allows."""

    def __init__(self, hold_seconds: float = HOLD_SECONDS) -> None:
        self._hold_seconds = hold_seconds
        self._waiting: list[tuple[float, Entry]] = []

    def put(self, entry: Entry, now: float) -> None:
        """Add a line at the time `now` of a monotonic clock."""
        self._waiting.append((now, entry))

    def take_due(self, now: float) -> list[Entry]:
        """Remove the lines that have waited long enough, with all older ones."""
        ripe = [
            entry.seconds for arrived, entry in self._waiting if arrived <= now - self._hold_seconds
        ]
        if not ripe:
            return []
        last = max(ripe)
        due = [entry for _, entry in self._waiting if entry.seconds <= last]
        self._waiting = [
            (arrived, entry) for arrived, entry in self._waiting if entry.seconds > last
        ]
        return in_order(due)


@dataclass(frozen=True)
class LogDisplay:
    """Which lines are shown: those of `run` unless it is empty, as JSON for programs."""

    width: int
    run: str = ""
    for_programs: bool = False
    since: float = 0.0

    def wants(self, entry: Entry) -> bool:
        """Whether to show the line."""
        return self.run in ("", entry.run) and entry.seconds >= self.since

    def render(self, entry: Entry) -> str:
        """`22:45:01.123 worker:0   | text`, or one JSON object."""
        if self.for_programs:
            return as_json(entry)
        milliseconds = whole_milliseconds(entry.seconds)
        clock = (
            time.strftime("%H:%M:%S", time.localtime(milliseconds // 1000))
            + f".{milliseconds % 1000:03d}"
        )
        if entry.line is None:
            text = entry.text
        else:
            text = entry.line.shown
        lines = (line.removesuffix("\r") for line in text.split("\n"))
        return "\n".join(
            f"{clock} {one_line(entry.source):<{self.width}} | {visible(line)}" for line in lines
        )


def as_json(entry: Entry) -> str:
    """Return the JSON object as it was written, else one with the same fields, in ASCII."""
    if entry.line is None:
        line = LogLine(
            entry.seconds, entry.text.strip(), role=" ".join(entry.source.split()), run=entry.run
        )
        return as_ascii(line.to_json())
    return as_ascii(parsed_json(entry.text) if entry.text.startswith("{") else entry.line.to_json())


def readable(text: str) -> str:
    """A line of a job's output for a person: the message where it is JSON, else the line."""
    if text.startswith("{"):
        line = read_line(text)
    else:
        line = None
    return visible(text.removesuffix("\r") if line is None else line.shown)


POLL_SECONDS = 0.2
READ_SECONDS = 60.0
UNIT_COLUMNS = 14
KEPT_BYTES = 128 << 20
"""The lines of one log that are read where a run is named."""
MOST_LINES = 1_000_000

_RUN_SLACK_SECONDS = 86400.0
"""Time that a node's clock may be behind that of the coordinator, which names the run."""
_NEWEST_RUNS = (
    'cd -- "$1" 2>/dev/null && ls -1d -- */coordinator.log 2>/dev/null | sort -r | head -n 3'
)


LogSource = FileLog | Journal
"""One log on a node. One thread at a time uses it: first to read its end, then to follow it."""


@dataclass(frozen=True)
class LogQuery:
    """Asks for the last `lines` lines, from `since` (Unix seconds) on, of `run` or of all runs."""

    lines: int
    since: float = 0.0
    run: str = ""


def chosen_places(
    places: Sequence[LogPlace], tasks: "Sequence[Task]", roles: Sequence[str], nodes: Sequence[str]
) -> list[LogPlace]:
    """The places of these roles and nodes, all of them without either.

    Raises UsageError for an unknown name.
    """
    if not roles and not nodes:
        return list(places)
    # Beside the tasks: the supervisor, which is on no node of the inventory, and the service, which
    # is on several.
    taskless_names = {place.name for place in places} - {"", *(task.name for task in tasks)}
    serving = [place for place in places if place.unit and place.name in taskless_names]
    selected = {
        place
        for place in places
        if place.name in set(roles) & taskless_names and (not nodes or place.node in nodes)
    }
    if not roles:
        selected |= {place for place in serving if place.node in nodes}
    of_tasks = [name for name in roles if name not in taskless_names]
    without_tasks = {place.node for place in serving} - {task.node for task in tasks}
    nodes_with_tasks = [name for name in nodes if name not in without_tasks]
    if nodes_with_tasks or not selected or (of_tasks and not nodes):
        task_names = {task.name for task in select(tasks, of_tasks, nodes_with_tasks)}
        selected |= {
            place for place in places if place.name in task_names and (of_tasks or not roles)
        }
    return [place for place in places if place in selected]


class ClusterLogs:
    """The logs at some places, by node, each with a column for its name."""

    def __init__(self, places: Sequence[LogPlace], query: LogQuery) -> None:
        self._run = query.run
        names = tuple(dict.fromkeys(place.node for place in places))
        self.has_journals = journals = any(place.unit for place in places)
        node_columns = max(map(len, names), default=0)
        if journals:
            self.width = node_columns + 1 + UNIT_COLUMNS
        else:
            self.width = max(len(place.name) for place in places)
        self._logs: dict[str, list[LogSource]] = {}
        for node in names:
            node_places = [place for place in places if place.node == node]
            units = [place.unit for place in node_places if place.unit]
            column = f"{node:<{node_columns}}"
            files = [
                _file(
                    place,
                    f"{column} {place.name.replace(':', '-')}" if journals else place.name,
                    query,
                )
                for place in node_places
                if not place.unit
            ]
            since = max(query.since, not_before(query.run))
            self._logs[node] = [
                *([Journal(node, column, units, query.lines, since)] if units else []),
                *files,
            ]

    def last(self, fleet: Fleet, follow: bool) -> dict[str, list[Entry] | ClusterError]:
        """The last lines of each node, or why they cannot be read."""

        def of_node(node: Connector) -> list[Entry]:
            return [
                entry for log in self._logs[node.name] for entry in _last_entries(node, log, follow)
            ]

        return fleet.each(of_node, tuple(self._logs))

    def follow(self, fleet: Fleet, show: Callable[[Entry], None]) -> None:
        """Show every later line until each log has ended, or Ctrl-C.

        A failure to follow one is a line too.
        """
        waiting = Interleaver()
        arriving = threading.Lock()
        stop = threading.Event()

        def pass_on(name: str, log: LogSource) -> None:
            def pass_line_on(text: str) -> None:
                entry = log.came(text)
                if entry is not None:
                    with arriving:
                        waiting.put(entry, time.monotonic())

            try:
                code = fleet.nodes[name].stream(
                    log.following(), pass_line_on, root=log.root, user=log.user, stop=stop
                )
                if code > 0:
                    raise ClusterError(
                        f"{name}: cannot follow one of its logs any more, the command ended with"
                        f" {code}; `fab deploy ssh --node {name}` looks at it by hand"
                    )
            except ClusterError as problem:
                with arriving:
                    waiting.put(
                        Entry(time.time(), name, str(problem), self._run, None), time.monotonic()
                    )

        threads = [
            threading.Thread(target=pass_on, args=(name, log), daemon=True)
            for name, logs in self._logs.items()
            for log in logs
        ]
        for thread in threads:
            thread.start()
        try:
            while True:
                living = any(thread.is_alive() for thread in threads)
                with arriving:
                    ripe = waiting.take_due(time.monotonic() if living else float("inf"))
                for entry in ripe:
                    show(entry)
                if not living:
                    return
                pause(POLL_SECONDS)
        finally:
            stop.set()
            for thread in threads:
                thread.join(5.0)


def not_before(run: str) -> float:
    """Return a time before every line of the run, by its name; 0 where the name has none."""
    try:
        begun = datetime.strptime(run.partition("-")[0], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        return 0.0
    return max(0.0, begun.timestamp() - _RUN_SLACK_SECONDS)


def newest_runs(places: Sequence[LogPlace], fleet: Fleet) -> list[str]:
    """Names of the latest runs, for a message."""
    place = next(place for place in places if place.runs is not None)
    listed = fleet.nodes[place.node].run(shell(_NEWEST_RUNS, place.runs or ""), user=place.user)
    return [line.partition("/")[0] for line in listed.text.splitlines()]


def _file(place: LogPlace, name: str, query: LogQuery) -> FileLog:
    if place.runs is None:
        return FileLog(name, fixed(str(place.path)), query.lines, user=place.user)
    if query.run:
        where = log_of_run(place.runs, query.run)
    elif place.jobs is None:
        where = log_of_latest_run(place.runs)
    else:
        where = log_of_latest_job(place.jobs)
    return FileLog(name, where, query.lines, run=query.run, user=place.user)


def _last_entries(node: Connector, log: LogSource, follow: bool) -> list[Entry]:
    read = node.run(
        log.reading(),
        root=log.root,
        user=log.user,
        deadline_seconds=READ_SECONDS,
        kept_bytes=KEPT_BYTES,
    )
    if _lacks_account(node, log, read):
        return []  # nothing was deployed there: without the account there is no job
    if not read.ok and read.stderr.strip():
        raise ClusterError(
            f"{node.name}: its logs cannot be read: {' | '.join(read.last_lines[-3:])}; "
            f"`fab deploy ssh --node {node.name}` looks at it by hand"
        )
    return log.read(read.stdout, follow)


def _lacks_account(node: Connector, log: LogSource, read: CommandResult) -> bool:
    if read.ok or log.user is None or log.user not in read.stderr:
        return False
    return node.run(["id", log.user]).return_code != 0
