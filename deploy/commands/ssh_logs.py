"""`fab deploy logs` for `connection: ssh`: the nodes' journals and the coordinator's log, as one story."""

import threading
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Protocol

from cluster.errors import ClusterError, UsageError
from cluster.logs.terminal import say
from deploy.cluster.connection import NodeConnection
from deploy.cluster.ssh_cluster import SshCluster
from deploy.commands.edge import DegradedError
from deploy.common.waiting import waiting_for
from deploy.jobs.node_jobs import runs_on_node
from deploy.logs.log_merge import Entry, Interleaver, Shown, in_order
from deploy.logs.node_coordinator_log import NodeCoordinatorLog
from deploy.logs.node_journal import NodeJournal, unit_pattern
from deploy.logs.since import not_before
from deploy.logs.since import since as seconds_of

POLL_SECONDS = 0.2
READ_SECONDS = 60.0
UNIT_COLUMNS = 14
KEPT_BYTES = 128 << 20
"""Of one log: a million lines are asked for where a run is named."""


class NodeLog(Protocol):
    """A log on a node. One thread at a time has it: first its end is read, then it is followed."""

    @property
    def user(self) -> str | None:
        """The account that reads it, root where it is None."""

    def reading(self) -> list[str]:
        """The command that shows the end of it."""

    def read(self, output: bytes, follow: bool) -> list[Entry]:
        """The lines in what that printed; with `follow` without one that is not whole yet."""

    def following(self) -> list[str]:
        """The command that shows what came after what was read, and what comes."""

    def came(self, text: str) -> Entry | None:
        """A line of what that prints; None for what is none."""


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
    from deploy.cluster.selection import select

    first = 0.0 if since is None else seconds_of(since, datetime.now().astimezone())
    run = Path(run).name if run else ""
    tasks = select(list(cluster.inventory.tasks()), roles, nodes)
    chosen = tasks if roles or nodes else ()
    names = tuple(dict.fromkeys(task.node for task in chosen)) or cluster.chosen_nodes(())
    column_width = max(map(len, names), default=0)
    shown = Shown(column_width + 1 + UNIT_COLUMNS, run, for_programs, first)
    lines = 1_000_000 if run else count

    def logs_of(name: str) -> list[NodeLog]:
        units = [unit_pattern(task.role, task.index) for task in tasks if task.node == name]
        everything = [] if chosen else ["pscluster-*"]
        column = f"{name:<{column_width}}"
        journal = NodeJournal(name, column, [*units, *everything], lines, max(first, not_before(run)))
        if not any(task.role == "coordinator" and task.node == name for task in tasks):
            return [journal]
        coordinator = f"{column} coordinator-0"
        return [journal, NodeCoordinatorLog(coordinator, runs_on_node(cluster.inventory), run, lines)]

    asked = {name: logs_of(name) for name in names}
    with cluster.fleet() as fleet:

        def last_of(node: NodeConnection) -> list[Entry]:
            found: list[Entry] = []
            for log in asked[node.name]:
                read = node.run(
                    log.reading(),
                    root=log.user is None,
                    user=log.user,
                    deadline_seconds=READ_SECONDS,
                    kept_bytes=KEPT_BYTES,
                )
                if (
                    not read.ok
                    and log.user is not None
                    and log.user in read.stderr
                    and node.run(["id", log.user]).return_code
                ):
                    continue  # nothing was deployed there: without the account there is no job
                if not read.ok and read.stderr.strip():
                    raise ClusterError(
                        f"{node.name}: its journal cannot be read: {' | '.join(read.last_lines[-3:])}; "
                        f"`fab deploy ssh --node {node.name}` looks at it by hand"
                    )
                found += log.read(read.stdout, follow)
            return found

        with waiting_for("reading the logs"):
            found = fleet.each(last_of, names)
        answered = [entries for entries in found.values() if not isinstance(entries, ClusterError)]
        known = [entry for entries in answered for entry in entries]
        told = [entry for entry in in_order(known) if shown.wants(entry)]
        if run and not told and not follow and len(answered) == len(found):
            raise UsageError(
                f"--run {run}: expected a run that the logs name, found no line of it; "
                "`fab job list` shows the runs there are"
            )
        for entry in told[-count:] if count else []:
            say(shown.render(entry))
        if follow:
            _follow(fleet.nodes, asked, shown)
    errors = [str(result) for result in found.values() if isinstance(result, ClusterError)]
    if errors:
        raise DegradedError("\n".join(errors))


def _follow(nodes: Mapping[str, NodeConnection], asked: Mapping[str, Sequence[NodeLog]], shown: Shown) -> None:
    """Show what comes until every stream has ended, or Ctrl-C."""
    waiting, arriving, stop = Interleaver(), threading.Lock(), threading.Event()

    def pass_on(name: str, log: NodeLog) -> None:
        def one(text: str) -> None:
            entry = log.came(text)
            if entry is not None:
                with arriving:
                    waiting.put(entry, time.monotonic())

        try:
            code = nodes[name].stream(log.following(), one, root=log.user is None, user=log.user, stop=stop)
            if code > 0:
                raise ClusterError(
                    f"{name}: a log of it is followed no more, the command ended with {code}; "
                    f"`fab deploy ssh --node {name}` looks at it by hand"
                )
        except ClusterError as problem:
            with arriving:
                waiting.put(Entry(time.time(), name, str(problem), shown.run, None), time.monotonic())

    threads = [
        threading.Thread(target=pass_on, args=(name, log), daemon=True) for name, logs in asked.items() for log in logs
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
                    say(shown.render(entry))
            if not living:
                return
            time.sleep(POLL_SECONDS)
    finally:
        stop.set()
        for thread in threads:
            thread.join(5.0)
