"""The actions of `fab deploy` that every kind of cluster has."""

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from invoke.exceptions import Exit

from cluster.errors import ClusterError, ExitCode, UsageError
from cluster.logs.terminal import say, say_json
from deploy.cluster.selection import kept_tasks, select_nodes, select_with_services
from deploy.cluster.services import DegradedError
from deploy.commands.edge import end_as_the_job_did, takes
from deploy.commands.flags import Flags, interval, seconds_of, whole_number
from deploy.commands.jobs import OF_DATA, OF_LOGS, with_overrides
from deploy.commands.machine_actions import monitor, push, reset, rollback, ssh, storage, trust
from deploy.commands.opened import OpenCluster
from deploy.commands.opening import open_cluster
from deploy.commands.render import render
from deploy.common.waiting import waiting_for
from deploy.jobs.request import needs_data

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deploy.cluster.fleet import Fleet
    from deploy.converge.deployment import Order, Outlook, Result


@takes("inventory set_ json_")
def check(flags: Flags) -> None:
    """Whether the cluster can start: ports, TensorFlow, memory, disks, clocks, data. Changes nothing."""
    opened = open_cluster(flags)
    from deploy.converge.deployment import LOOKING
    from deploy.terminal.console import show_findings

    with opened.cluster.fleet() as fleet, waiting_for(LOOKING):
        findings = opened.desired().check(fleet)
    if flags.json_:
        say_json({"cluster": opened.inventory.cluster, "findings": [finding.to_json() for finding in findings]})
    else:
        show_findings(findings)
    if any(finding.level == "problem" for finding in findings):
        raise Exit(None, ExitCode.FAILED)


@takes("inventory set_ jobs no_jobs limit json_")
def plan(flags: Flags) -> None:
    """What `start` would do now. Changes nothing."""
    _show_plan(open_cluster(flags), flags)


@takes("inventory set_ jobs no_jobs data limit retry dry_run json_ quiet log_format log_level")
def start(flags: Flags) -> None:
    """Start what is not running, wait until it is ready, then run the inventory's jobs in order."""
    wanted = flags.wanted
    if flags.json_ and not flags.dry_run:
        raise UsageError("--json: goes with --dry-run; `fab deploy status --json` shows the cluster after a start")
    opened = open_cluster(with_overrides(flags, OF_DATA | OF_LOGS))
    if flags.dry_run:
        _show_plan(opened, flags)
        return
    order = _order(opened, flags)
    gone = opened.cluster.nodes_gone()
    if gone:
        say(
            f"no longer in the inventory, and not touched: {', '.join(gone)}; `fab deploy reset --limit NODE` with the "
            "inventory that still has them ends their roles",
            error=True,
        )
    with opened.cluster.fleet() as fleet:
        result = _started(opened, fleet, order, wanted, flags.quiet)
    if not result.whole or result.recap.notes:
        raise Exit(None, ExitCode.DEGRADED)
    opened.cluster.remember_nodes()
    _run_jobs(opened, result, wanted, flags.quiet)
    if result.recap.failures:
        raise Exit(None, ExitCode.DEGRADED)


@takes("inventory set_ limit")
def stop(flags: Flags) -> None:
    """Interrupt a running job, then stop every role. Stopping what does not run is no error."""
    opened = open_cluster(flags, as_written=True)

    names = select_nodes(opened.inventory, flags.limit)
    with opened.cluster.fleet() as fleet, waiting_for("stopping the job, if one runs, and the roles"):
        stopped = opened.cluster.services.stop(fleet, names)
    opened.view.stopped(stopped)
    if stopped.failed:
        raise DegradedError("\n".join(map(str, stopped.failed.values())))


@takes("inventory set_ role node serial")
def restart(flags: Flags) -> None:
    """Stop and start every role and service, or only some, `--serial` nodes at a time. Runs no jobs.

    The workers of a batch are drained first, if a job runs and other workers can take over. Services follow the roles
    of their batch, one node after the other: each must answer again before the next. What does not come up ends it.
    """
    count = whole_number("--serial", flags.serial, 0, 1024)
    opened = open_cluster(flags)
    from deploy.converge.draining import drain
    from deploy.converge.systemd import batches
    from deploy.converge.this_machine import require_ready

    inventory = opened.inventory
    tasks, services = select_with_services(kept_tasks(inventory), inventory.service_nodes, flags.role, flags.node)
    with opened.cluster.fleet() as fleet:
        for batch in batches(list(dict.fromkeys([*(task.node for task in tasks), *services])), count):
            chosen = [task for task in tasks if task.node in batch]
            if chosen:
                drain(inventory, fleet, chosen)
                with waiting_for(f"restarting on {', '.join(batch)}"):
                    now = opened.cluster.services.restart(fleet, chosen)
                require_ready(now, [task.name for task in chosen], inventory.path)
                opened.view.restarted(chosen, now)
            _restart_services(opened, fleet, [name for name in batch if name in services])


@takes("inventory set_ limit json_ watch")
def status(flags: Flags) -> None:
    """One line a role or node: address, state, memory, uptime, restarts. Exit code 3 unless all are ready."""
    if flags.watch is not None and flags.json_:
        raise UsageError("--watch and --json: give one of them; a program asks again with --json when it wants to")
    every_seconds = None if flags.watch is None else interval(flags.watch)
    opened = open_cluster(flags, as_written=True)
    from deploy.terminal.console import console, show_again

    names, view = select_nodes(opened.inventory, flags.limit), opened.view
    with opened.cluster.fleet() as fleet:
        if every_seconds is not None:  # over connections that stay open
            show_again(every_seconds, lambda columns: view.status(fleet, names, with_job=True).parts(columns))
            return
        picture = view.status(fleet, names, with_job=False)
    if flags.json_:
        say_json(picture.json)
    else:
        screen = console()
        for part in picture.parts(screen.width):
            screen.print(part)
    if not picture.well:
        raise Exit(None, ExitCode.DEGRADED)


@takes("inventory set_ role node lines since run follow json_")
def logs(flags: Flags) -> None:
    """The logs of all roles and of the coordinator, merged by time; with --follow every later line too."""
    # All lines of the time or the run that is asked for.
    usual = "1_000_000" if flags.since or flags.run else "20"
    count = whole_number("--lines", flags.lines or usual, 0, 1_000_000)
    first = 0.0 if flags.since is None else seconds_of(flags.since, datetime.now().astimezone())
    run = Path(flags.run).name if flags.run else ""
    opened = open_cluster(flags, as_written=True)
    places = opened.cluster.services.logs()
    from deploy.logs.log_merge import Entry, Shown, in_order
    from deploy.logs.log_reader import MOST_LINES, ClusterLogs, LogQuery, chosen, newest_runs

    query = LogQuery(MOST_LINES if run else count, first, run)
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


def _restart_services(opened: OpenCluster, fleet: "Fleet", names: "Sequence[str]") -> None:
    """One node after the other. Raises DegradedError for the first that is not ready again; the others are left."""
    from deploy.converge.serving import restart_service

    for at, name in enumerate(names):
        try:
            with waiting_for(f"restarting the service on {name}"):
                state = restart_service(opened.inventory, fleet.nodes[name])
        except ClusterError as error:
            left = ", ".join(names[at + 1 :])
            raise DegradedError(f"{error}{'; not restarted: ' if left else ''}{left}") from error
        say(f"{name}: service {state}")


def _started(opened: OpenCluster, fleet: "Fleet", order: "Order", wanted: bool | None, quiet: bool) -> "Result":
    from deploy.converge.deployment import converge

    pending = opened.jobs.pending

    def before(outlook: "Outlook") -> None:
        due = wanted or (wanted is None and (outlook.counts_as_start or pending.noted))
        if due:
            opened.data.refuse_missing()
            if not pending.noted:
                pending.note()

    with opened.view.progress(quiet) as progress:
        result = converge(opened.cluster, fleet, opened.desired(), order, progress, before)
    if wanted and not pending.noted:
        pending.note()
    idle_said = bool(opened.inventory.jobs.order) and wanted is None and not pending.noted
    opened.view.result(result, fleet, idle_said)
    if result.whole and result.recap.changed:
        names = [name for name in order.names if name not in result.recap.failures]
        for problem in result.outlook.desired.tidy(fleet, result.outlook.survey, names):
            say(f"left in place: {problem}", error=True)
    return result


def _run_jobs(opened: OpenCluster, result: "Result", wanted: bool | None, quiet: bool) -> None:
    """Run the inventory's jobs, unless the person or a cluster that ran before the start says otherwise."""
    pending, order = opened.jobs.pending, opened.inventory.jobs.order
    if wanted is False:
        later = "; the next start without it runs those that an earlier one did not submit" if pending.noted else ""
        if order:
            say(f"jobs not run: --no-jobs{later}")
    elif not pending.noted:
        if order:
            say("already running, jobs not repeated (--jobs runs them)")
    else:
        if wanted is None and not result.outlook.counts_as_start:
            say("an earlier start did not come to submit all its jobs: they are run now")
        end_as_the_job_did(opened.jobs.run_jobs(order, ["--quiet"] if quiet else []))


def _show_plan(opened: OpenCluster, flags: Flags) -> None:
    from deploy.converge.deployment import LOOKING, look

    order = _order(opened, flags)
    with opened.cluster.fleet() as fleet, waiting_for(LOOKING) as update:
        outlook = look(fleet, opened.desired(), order, update)
    code = opened.view.plan(outlook, flags.wanted, flags.json_)
    if code:
        raise Exit(None, code)


def _order(opened: OpenCluster, flags: Flags) -> "Order":
    from deploy.converge.deployment import Order
    from deploy.converge.recap import to_do_again

    with_data = flags.wanted is not False and any(map(needs_data, opened.inventory.jobs.order))
    publications = opened.data.publications if with_data else None
    if not flags.retry:
        return Order("start", select_nodes(opened.inventory, flags.limit), publications=publications)
    if flags.limit:
        raise UsageError("--limit and --retry: give one of them")
    again = to_do_again(opened.cluster.deployments)
    names = tuple(node.name for node in opened.inventory.nodes if node.name in again.nodes)
    if not names:
        raise UsageError("--retry: no node failed in the last deployment: leave --retry out")
    why = "the last deployment was cut short; " if again.cut_short else ""
    say(f"{why}once more: {', '.join(names)}", error=True)
    return Order("start", names, publications=publications)


ACTIONS = (check, plan, push, storage, start, stop, restart, status, logs, rollback, reset, trust, monitor, render, ssh)
