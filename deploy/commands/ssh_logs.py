"""`fab deploy logs` for `connection: ssh`: the nodes' journals and the coordinator's log, as one story."""

import shlex
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from cluster.errors import ClusterError
from deploy.commands.edge import DegradedError
from deploy.coordinator_log import NAME
from deploy.journal import parse_line
from deploy.node_jobs import runs_on_node
from deploy.remote.connection import NodeConnection
from deploy.render.job_unit import NodePlaces
from deploy.since import since as seconds_of
from deploy.ssh_cluster import SshCluster
from deploy.story import Entry, Interleaver, Shown, Source, in_order
from deploy.waiting import waiting_for

POLL_SECONDS = 0.2
READ_SECONDS = 60.0
UNIT_COLUMNS = 14
COORDINATOR = "coordinator-0"


@dataclass
class Teller:
    """Places the lines of all logs of all nodes; its threads are the nodes'."""

    nodes: Sequence[str]
    run: str
    _sources: dict[tuple[str, str], Source] = field(default_factory=dict)
    _placing: threading.Lock = field(default_factory=threading.Lock)

    @property
    def width(self) -> int:
        """Of the column that says whose a line is."""
        return max(map(len, self.nodes), default=0) + 1 + UNIT_COLUMNS

    def journal(self, node: str, text: str) -> Entry | None:
        """A line of `journalctl -o json`; None for what is none."""
        line = parse_line(node, text)
        return None if line is None else self._place(node, line.unit, line.text, line.seconds)

    def coordinator(self, node: str, text: str) -> Entry:
        """A line of the coordinator's log, all of which is of the run asked for."""
        return self._place(node, COORDINATOR, text, None)

    def _place(self, node: str, unit: str, text: str, seconds: float | None) -> Entry:
        with self._placing:
            run = self.run if unit == COORDINATOR else ""
            name = f"{node:<{max(map(len, self.nodes), default=0)}} {unit}"
            return self._sources.setdefault((node, unit), Source(name, run)).place(text, time.time(), seconds)


Place = Callable[[str, str], Entry | None]


def logs(
    cluster: SshCluster,
    roles: Sequence[str],
    nodes: Sequence[str],
    count: int,
    since: str | None,
    run: str | None,
    follow: bool,
    for_programs: bool,
) -> None:
    """Show the last lines of all nodes together by their times; with `follow` go on with what comes."""
    from deploy.selection import select

    first = 0.0 if since is None else seconds_of(since, datetime.now().astimezone())
    run = Path(run).name if run else ""
    tasks = select(list(cluster.inventory.tasks()), roles, nodes)
    chosen = tasks if roles or nodes else ()
    names = tuple(dict.fromkeys(task.node for task in chosen)) or cluster.chosen_nodes(())
    patterns = {
        name: [_pattern(task.role, task.index) for task in chosen if task.node == name] or ["pscluster-*"]
        for name in names
    }
    hosts = {task.node for task in tasks if task.role == "coordinator"}
    runs = runs_on_node(cluster.inventory)
    teller = Teller(names, run)
    shown = Shown(teller.width, run, for_programs, first)
    lines = 1_000_000 if run else count

    def commands(name: str, following: bool) -> list[tuple[str, Place]]:
        """What is read on the node, and what makes entries of it."""
        asked: list[tuple[str, Place]] = [
            (_journalctl(patterns[name], 0 if following else lines, first, follow=following), teller.journal)
        ]
        if name in hosts:
            asked.append((coordinator_command(runs, run, lines, follow=following), teller.coordinator))
        return asked

    with cluster.fleet() as fleet:

        def last_of(node: NodeConnection) -> list[Entry]:
            found: list[Entry | None] = []
            for command, place in commands(node.name, following=False):
                read = node.run(command, root=True, deadline_seconds=READ_SECONDS)
                if not read.ok and read.stderr.strip():
                    raise ClusterError(
                        f"{node.name}: its journal cannot be read: {' | '.join(read.last_lines[-3:])}; "
                        f"`fab deploy ssh --node {node.name}` looks at it by hand"
                    )
                found += [place(node.name, text) for text in read.text.splitlines()]
            return [entry for entry in found if entry is not None]

        with waiting_for("reading the logs"):
            found = fleet.each(last_of, names)
        known = [entry for entries in found.values() if not isinstance(entries, ClusterError) for entry in entries]
        told = [entry for entry in in_order(known) if shown.wants(entry)]
        for entry in told[-count:] if count else []:
            print(shown.render(entry), flush=True)
        if follow:
            streams = {name: commands(name, following=True) for name in names}
            _follow(lambda name: fleet.nodes[name], streams, shown)
    errors = [str(result) for result in found.values() if isinstance(result, ClusterError)]
    if errors:
        raise DegradedError("\n".join(errors))


def _follow(
    node_of: Callable[[str], NodeConnection], streams: Mapping[str, Sequence[tuple[str, Place]]], shown: Shown
) -> None:
    """Show what comes until every stream has ended, or Ctrl-C."""
    waiting, arriving, stop = Interleaver(), threading.Lock(), threading.Event()

    def pass_on(name: str, command: str, place: Place) -> None:
        def one(text: str) -> None:
            entry = place(name, text)
            if entry is not None:
                with arriving:
                    waiting.put(entry, time.monotonic())

        try:
            node_of(name).stream(command, one, root=True, stop=stop)
        except ClusterError as problem:
            with arriving:
                waiting.put(Entry(time.time(), name, str(problem), shown.run, None), time.monotonic())

    threads = [
        threading.Thread(target=pass_on, args=(name, command, place), daemon=True)
        for name, asked in streams.items()
        for command, place in asked
    ]
    for thread in threads:
        thread.start()
    try:
        while True:
            living = any(thread.is_alive() for thread in threads)
            with arriving:
                ripe = waiting.take(time.monotonic() if living else float("inf"))
            for entry in ripe:
                if shown.wants(entry):
                    print(shown.render(entry), flush=True)
            if not living:
                return
            time.sleep(POLL_SECONDS)
    finally:
        stop.set()
        for thread in threads:
            thread.join(5.0)


def _pattern(role: str, index: int) -> str:
    return "pscluster-job@*" if role == "coordinator" else f"pscluster-{role}-{index}.service"


def _journalctl(patterns: Sequence[str], count: int, since: float, *, follow: bool) -> str:
    units = " ".join(f"-u {shlex.quote(pattern)}" for pattern in patterns)
    when = f" --since=@{since:.6f}" if since > 0 else ""
    # --all: a field beyond 4096 bytes, such as a line of JSON with a traceback, would be left out.
    return f"journalctl --no-pager -q --all -o json {units}{when} -n {count}{' -f' if follow else ''}"


def coordinator_command(runs: str, run: str, count: int, *, follow: bool, places: NodePlaces = NodePlaces()) -> str:  # noqa: B008  frozen
    """A simple command that shows the last lines of the coordinator's log on its node, or what comes.

    That is the log of `run`, else of the run of the newest job; what a job said that never got as far as a run, if
    that is the newest. A job that begins later is followed from its beginning.
    """
    jobs = shlex.quote(f"{places.state}/jobs")
    newest = (
        f'j={jobs}/$(ls -1 {jobs} 2>/dev/null | sort | tail -n 1); f="$(cat "$j/run" 2>/dev/null)/{NAME}"; '
        '[ -f "$f" ] || f="$j/output.log"'
    )
    find = f"f={shlex.quote(f'{runs}/{run}/{NAME}')}" if run else newest
    if not follow:
        return "sh -c " + shlex.quote(f'{find}; [ ! -f "$f" ] || exec tail -n {count} -- "$f"')
    # `tail -F` alone would stay with one run's log. The trap ends it with us.
    script = (
        "p=; g=; n=0; trap 'kill $p 2>/dev/null; exit' TERM INT HUP; "
        f"while :; do {find}; "
        'if [ "$f" != "$g" ] && [ -f "$f" ]; then [ -z "$p" ] || kill $p; '
        'tail -n "$n" -F -- "$f" 2>/dev/null & p=$!; g=$f; fi; n=+1; sleep 1; done'
    )
    return f"sh -c {shlex.quote(script)}"
