"""The actions of `fab deploy` that every kind of cluster has."""

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

from core.ground.errors import ClusterError, ExitCode, UsageError
from core.logs import say, say_json
from deploy.cluster.services import DegradedError, kept_tasks, select_nodes, select_with_services
from deploy.commands.action import end_as_the_job_did, end_degraded, takes
from deploy.commands.flags import (
    USUAL_SECONDS,
    AnsweredFlags,
    JsonFlags,
    LimitFlags,
    LogFlags,
    Names,
    RoleFlags,
    interval,
    names,
    serial_flag,
    switch,
    text,
    with_overrides,
)
from deploy.commands.jobs import data_flag, format_flag
from deploy.commands.opening import open_cluster
from deploy.common.interrupts import waiting_for
from deploy.jobs.request import needs_data
from deploy.terminal.console import may_interrupt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deploy.cluster.fleet import Fleet
    from deploy.commands.clusters import OpenCluster
    from deploy.converge.deployment import DeploymentPlan, DeploymentRequest, Result


class PlanFlags(LimitFlags, JsonFlags):
    """The flags of `deploy plan`."""

    jobs: bool = switch("run the inventory's jobs also when the cluster is running already")
    no_jobs: bool = switch("only start the roles")

    @property
    def with_jobs(self) -> bool | None:
        """Whether the inventory's jobs are to run; None where the person leaves it open.

        Raises UsageError.
        """
        if self.jobs and self.no_jobs:
            raise UsageError("--jobs and --no-jobs: give one of them")
        if self.jobs:
            return True
        if self.no_jobs:
            return False
        return None


class StartFlags(LogFlags, PlanFlags):
    """The flags of `deploy start`."""

    json_: bool = switch("with --dry-run: one JSON object for programs instead of text for people")
    data: str | None = data_flag()
    format: str | None = format_flag()
    retry: bool = switch(
        "only the nodes that failed in the last deployment; all nodes if it was cut short"
    )
    new_keys: Names = names("new keys of WireGuard for these nodes (repeatable)")
    dry_run: bool = switch("show the plan, change nothing")
    quiet: bool = switch("no progress of jobs")
    yes: bool = switch("do not ask")

    @property
    def job_flags(self) -> list[str]:
        """The flags for the coordinator of its jobs."""
        return ["--quiet"] if self.quiet else []


class RestartFlags(RoleFlags):
    """The flags of `deploy restart`."""

    serial: int = serial_flag()
    yes: bool = switch("do not ask")


class StatusFlags(LimitFlags, JsonFlags):
    """The flags of `deploy status`."""

    watch: float | None = text(
        "refresh it every so often (2 s) until Ctrl-C",
        metavar="[SECONDS]",
        read=interval,
        bare=str(USUAL_SECONDS),
    )


@takes(JsonFlags)
def check(flags: JsonFlags) -> None:
    """Check whether the cluster can start: ports, TensorFlow, memory, disks, clocks, data.

    Changes nothing.
    """
    opened = open_cluster(flags)
    from deploy.converge.deployment import LOOKING
    from deploy.terminal.deployments import show_findings

    with opened.cluster.fleet() as fleet, waiting_for(LOOKING):
        findings = opened.desired.check(fleet)
    if flags.json_:
        say_json(
            {
                "cluster": opened.inventory.cluster,
                "findings": [finding.to_json() for finding in findings],
            }
        )
    else:
        show_findings(findings)
    if any(finding.level == "problem" for finding in findings):
        sys.exit(ExitCode.FAILED)


@takes(PlanFlags)
def plan(flags: PlanFlags) -> None:
    """Show what `start` would do now. Changes nothing."""
    _show_plan(open_cluster(flags), flags, retry=False)


@takes(StartFlags)
def start(flags: StartFlags) -> None:
    """Start what is not running, wait until it is ready, then run the inventory's jobs in order."""
    with_jobs = flags.with_jobs
    if flags.json_ and not flags.dry_run:
        raise UsageError(
            "--json: goes with --dry-run; `fab deploy status --json` shows the cluster after a"
            " start"
        )
    opened = open_cluster(with_overrides(flags))
    if flags.new_keys:
        opened.replace_keys(flags.new_keys)
    if flags.dry_run:
        _show_plan(opened, flags, retry=flags.retry)
        return
    order = _order(opened, flags, retry=flags.retry)
    if opened.has_machines and not opened.inventory.encrypted:
        from deploy.cluster.login import IN_CLEAR

        say(IN_CLEAR, error=True)
    for line in opened.cluster.lines_of_nodes_gone:
        say(line, error=True)
    with ExitStack() as ahead:
        with opened.operator("start") as jobs, opened.cluster.fleet() as fleet:
            result = _started(opened, fleet, order, flags, jobs, ahead)
        if not result.whole or result.recap.notes:
            end_degraded()
        opened.cluster.remember_nodes()
        _run_jobs(opened, result, with_jobs, flags.job_flags)
    if result.recap.failures:
        end_degraded()


@takes(AnsweredFlags)
def stop(flags: AnsweredFlags) -> None:
    """Interrupt a running job, then stop every role. Stopping what does not run is no error."""
    opened = open_cluster(flags, as_written=True)
    nodes = select_nodes(opened.inventory, flags.limit)
    with opened.operator("stop") as jobs, opened.cluster.fleet() as fleet:
        may_interrupt(jobs, flags.yes)
        with waiting_for("stopping the job, if one runs, and the roles"):
            stopped = opened.cluster.services.stop(fleet, nodes)
    opened.stopped(stopped)
    if stopped.failed:
        raise DegradedError("\n".join(map(str, stopped.failed.values())))


@takes(RestartFlags)
def restart(flags: RestartFlags) -> None:
    """Stop and start every role and service, or only some, `--serial` nodes at a time.

    Runs no jobs.

    The workers of a batch are drained first, if a job runs and other workers can take over.
    Services follow the roles of their batch, one node after the other: each must answer again
    before the next. It ends at the first one that does not come up.
    """
    opened = open_cluster(flags)
    from deploy.converge.coordinator import drain, workers_to_drain
    from deploy.converge.systemd import batches
    from deploy.converge.this_machine import require_ready

    inventory = opened.inventory
    tasks, services = select_with_services(
        kept_tasks(inventory), inventory.service_nodes, flags.role, flags.node
    )
    with opened.operator("restart") as jobs, opened.cluster.fleet() as fleet:
        if tasks and not workers_to_drain(tasks, inventory.of_role("worker")):
            may_interrupt(jobs, flags.yes)
        concerned = dict.fromkeys([*(task.node for task in tasks), *services])
        for batch in batches(list(concerned), flags.serial):
            chosen = [task for task in tasks if task.node in batch]
            if chosen:
                drain(inventory, fleet, chosen)
                with waiting_for(f"restarting on {', '.join(batch)}"):
                    now = opened.cluster.services.restart(fleet, chosen)
                require_ready(now, [task.name for task in chosen], inventory.path)
                opened.restarted(chosen, now)
            _restart_services(opened, fleet, [name for name in batch if name in services])


@takes(StatusFlags)
def status(flags: StatusFlags) -> None:
    """Show a line for each role or node: address, state, memory, uptime, restarts.

    Exit code 3 unless all are ready.
    """
    if flags.watch is not None and flags.json_:
        raise UsageError(
            "--watch and --json: give one of them; a program asks again with --json when it"
            " wants to"
        )
    opened = open_cluster(flags, as_written=True)
    from deploy.terminal.console import columns, console, show_again

    nodes = select_nodes(opened.inventory, flags.limit)
    with opened.cluster.fleet() as fleet:
        if flags.watch is not None:  # over connections that stay open
            show_again(
                flags.watch,
                lambda columns: opened.status(fleet, nodes, with_job=True).renderables(columns),
            )
            return
        picture = opened.status(fleet, nodes, with_job=False)
    if flags.json_:
        say_json(picture.json)
    else:
        screen = console()
        for part in picture.renderables(columns()):
            screen.print(part)
    if not picture.well:
        end_degraded()


def _restart_services(opened: "OpenCluster", fleet: "Fleet", nodes: "Sequence[str]") -> None:
    """Restart the service of each node, one node after the other.

    Raises DegradedError for the first that is not ready again; the others are left.
    """
    from deploy.converge.serving import restart_service

    for at, name in enumerate(nodes):
        try:
            with waiting_for(f"restarting the service on {name}"):
                state = restart_service(opened.inventory, fleet.nodes[name])
        except ClusterError as error:
            not_restarted = ", ".join(nodes[at + 1 :])
            raise DegradedError(
                f"{error}{'; not restarted: ' if not_restarted else ''}{not_restarted}"
            ) from error
        say(f"{name}: service {state}")


def _started(
    opened: "OpenCluster",
    fleet: "Fleet",
    order: "DeploymentRequest",
    flags: StartFlags,
    jobs: "Sequence[str]",
    ahead: ExitStack,
) -> "Result":
    from deploy.converge.deployment import converge

    with_jobs = flags.with_jobs
    pending = opened.jobs.pending

    def before(planned: "DeploymentPlan") -> None:
        services = planned.plans["services"].values()
        actions = {change.action for changes in services for change in changes}
        # A start here restarts only roles that a job has lost already.
        if jobs and opened.has_machines and actions & {"restart", "remove"}:
            progress.stand_still()
            may_interrupt(jobs, flags.yes)
        due = with_jobs or (with_jobs is None and (planned.counts_as_start or pending.noted))
        if due:
            opened.data.refuse_missing()
            if not pending.noted:
                pending.note()
            ahead.enter_context(opened.jobs.ahead(opened.inventory.jobs.order, flags.job_flags))

    with opened.progress(flags.quiet) as progress:
        result = converge(opened.cluster, fleet, opened.desired, order, progress, before)
    if with_jobs and not pending.noted:
        pending.note()
    idle_said = bool(opened.inventory.jobs.order) and with_jobs is None and not pending.noted
    opened.result(result, fleet, idle_said)
    if result.whole and result.recap.changed:
        well = [name for name in order.names if name not in result.recap.failures]
        for problem in result.planned.desired.tidy(fleet, result.planned.survey, well):
            say(f"left in place: {problem}", error=True)
    return result


def _run_jobs(
    opened: "OpenCluster", result: "Result", with_jobs: bool | None, job_flags: "Sequence[str]"
) -> None:
    """Run the inventory's jobs, unless flags or a cluster that ran before say otherwise."""
    pending = opened.jobs.pending
    order = opened.inventory.jobs.order
    if with_jobs is False:
        if pending.noted:
            later = "; the next start without it runs those that an earlier one did not submit"
        else:
            later = ""
        if order:
            say(f"jobs not run: --no-jobs{later}")
    elif not pending.noted:
        if order:
            say("already running, jobs not repeated (--jobs runs them)")
    else:
        if with_jobs is None and not result.planned.counts_as_start:
            say("an earlier start did not come to submit all its jobs: they are run now")
        end_as_the_job_did(opened.jobs.run_jobs(order, job_flags))


def _show_plan(opened: "OpenCluster", flags: PlanFlags, *, retry: bool) -> None:
    from deploy.converge.deployment import LOOKING, survey_and_plan

    order = _order(opened, flags, retry=retry)
    with opened.cluster.fleet() as fleet, waiting_for(LOOKING) as update:
        planned = survey_and_plan(fleet, opened.desired, order, update)
    code = opened.plan(planned, flags.with_jobs, flags.json_)
    if code:
        sys.exit(code)


def _order(opened: "OpenCluster", flags: PlanFlags, *, retry: bool) -> "DeploymentRequest":
    from deploy.converge.deployment import DeploymentRequest
    from deploy.converge.recap import to_do_again

    with_data = flags.with_jobs is not False and any(map(needs_data, opened.inventory.jobs.order))
    if with_data:
        publications = opened.data.publications
    else:
        publications = None
    if not retry:
        return DeploymentRequest(
            "start", select_nodes(opened.inventory, flags.limit), publications=publications
        )
    if flags.limit:
        raise UsageError("--limit and --retry: give one of them")
    again = to_do_again(opened.cluster.deployments)
    nodes = tuple(node.name for node in opened.inventory.nodes if node.name in again.nodes)
    if not nodes:
        raise UsageError("--retry: no node failed in the last deployment: leave --retry out")
    why = ""
    if again.cut_short:
        why = "the last deployment was cut short; "
    say(f"{why}once more: {', '.join(nodes)}", error=True)
    return DeploymentRequest("start", nodes, publications=publications)
