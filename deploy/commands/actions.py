"""The actions of `fab deploy`."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from invoke.exceptions import Exit

from cluster.errors import ExitCode, UsageError
from cluster.logs.terminal import say, say_json
from deploy.cluster.role_status import ClusterStatus, other_inventory
from deploy.cluster.services import Services
from deploy.commands import watching
from deploy.commands.edge import DegradedError, at_the_edge, end_as_the_job_did
from deploy.commands.flags import whole_number
from deploy.commands.job_settings import data_settings, log_settings
from deploy.commands.logs import logs
from deploy.commands.machine_actions import push, reset, rollback, ssh, storage, trust
from deploy.commands.monitor import monitor
from deploy.commands.opening import Names, only_over_ssh, opened_inventory, services_of, ssh_cluster
from deploy.common.hints import command
from deploy.common.waiting import waiting_for
from deploy.terminal.job_progress import of_coordinator, progress_line

if TYPE_CHECKING:
    from rich.console import RenderableType

    from cluster.inventory import Inventory, Task


@at_the_edge
def check(context: Any, inventory: str | None = None, set_: Names = None, json_: bool = False) -> None:
    """Could the cluster be started: ports, TensorFlow, memory, port guard, data. Changes nothing."""
    opened = opened_inventory(inventory, set_, json_)
    if opened.connection == "ssh":
        from deploy.commands import ssh_start

        ssh_start.check(ssh_cluster(opened, set_), json_)
        return
    services = services_of(opened, set_)
    from deploy.converge.check import check_node
    from deploy.converge.facts import gather_here
    from deploy.converge.memory_estimate import of_inventory
    from deploy.terminal.console import show_findings

    tasks = opened.tasks()
    ports = [port for task in tasks for port in (task.port, task.metrics_port, task.page_port) if port is not None]
    facts = gather_here(ports, opened.jobs.train.data.source)
    memory = of_inventory(opened, {node.name: facts.cores for node in opened.nodes})
    findings = check_node(tasks, services.status(), facts, memory, services.running_job() is not None)
    if json_:
        say_json({"cluster": opened.cluster, "findings": [finding.to_json() for finding in findings]})
    else:
        show_findings(findings)
    if any(finding.level == "problem" for finding in findings):
        raise Exit(None, ExitCode.FAILED)


@at_the_edge
def plan(
    context: Any,
    inventory: str | None = None,
    set_: Names = None,
    jobs: bool = False,
    no_jobs: bool = False,
    limit: Names = None,
    json_: bool = False,
) -> None:
    """What `start` would do now. Changes nothing."""
    _show_plan(opened_inventory(inventory, set_, json_), set_, _wanted(jobs, no_jobs), limit, False, json_)


@at_the_edge
def start(
    context: Any,
    inventory: str | None = None,
    set_: Names = None,
    jobs: bool = False,
    no_jobs: bool = False,
    data: str | None = None,
    limit: Names = None,
    retry: bool = False,
    dry_run: bool = False,
    json_: bool = False,
    quiet: bool = False,
    log_format: str | None = None,
    log_level: str | None = None,
) -> None:
    """Start what is not running, wait until it is ready, then run the inventory's jobs in order."""
    wanted = _wanted(jobs, no_jobs)
    overrides = [*data_settings(data), *log_settings(log_format, log_level), *(set_ or ())]
    if json_ and not dry_run:
        raise UsageError("--json: goes with --dry-run; `fab deploy status --json` tells what came of a start")
    if dry_run:
        _show_plan(opened_inventory(inventory, overrides, json_), overrides, wanted, limit, retry, json_)
        return
    opened = opened_inventory(inventory, overrides)
    if opened.connection == "ssh":
        from deploy.commands import ssh_start

        ssh_start.start(ssh_cluster(opened, overrides), limit or (), retry, wanted, quiet)
        return
    only_over_ssh({"--limit": limit, "--retry": retry})
    services = services_of(opened, overrides)
    from deploy.converge.plan import plan_start

    made = plan_start(_kept(opened), services.status(), opened.jobs.order, wanted, opened.path)
    if made.refusals:
        raise UsageError(made.refusals[0].detail)
    _refuse_missing_recordings(opened, {step.subject for step in made.steps if step.kind == "run"})
    skipped = [step for step in made.steps if step.kind == "skip"]
    if any(step.kind in ("start", "restart", "wait") for step in made.steps):
        _bring_up(services, opened.tasks(), opened.path, quiet)
    elif wanted is not None or not skipped:
        say(f"already running: {_counts(services.status())}")
    if skipped:
        say(skipped[0].detail if wanted is None else "jobs not run: --no-jobs")
    for step in made.steps:
        if step.kind == "run":
            say(f"{step.detail}: {step.subject}")
            end_as_the_job_did(services.run_job(step.subject, ["--quiet"] if quiet else []))


def _refuse_missing_recordings(opened: Any, jobs: Collection[str]) -> None:
    """Before roles are started and pi has run: a wrong path is told at once."""
    source = opened.jobs.train.data.source
    if source is None or not {"train", "evaluate"} & set(jobs):
        return
    from deploy.converge.facts import recordings_here

    found = recordings_here(source)
    if not found.holds:
        raise UsageError(found.line)


@at_the_edge
def stop(context: Any, inventory: str | None = None, set_: Names = None, limit: Names = None) -> None:
    """Interrupt a running job, then stop every role. Stopping what does not run is no error."""
    opened = opened_inventory(inventory, set_, as_written=True)
    if opened.connection == "ssh":
        from deploy.commands import ssh_day_two

        ssh_day_two.stop(ssh_cluster(opened, set_), limit or ())
        return
    only_over_ssh({"--limit": limit})
    services = services_of(opened, set_)
    with waiting_for("stopping the job, if one runs, and the roles"):
        report = services.stop()
    line = "stopped" if report.ran else "nothing was running"
    if report.killed:
        line += f"; had to be killed: {', '.join(report.killed)}"
    other = other_inventory(report.inventory, opened.path)
    say(f"{line}; {_started_from(other, opened.path)}" if other else line)


@at_the_edge
def restart(
    context: Any,
    inventory: str | None = None,
    set_: Names = None,
    role: Names = None,
    node: Names = None,
    serial: str = "0",
) -> None:
    """Stop and start every role with the inventory as it is now, or only some roles. Runs no jobs."""
    count = whole_number("--serial", serial, 0, 1024)
    opened = opened_inventory(inventory, set_)
    if opened.connection == "ssh":
        from deploy.commands import ssh_day_two

        ssh_day_two.restart(ssh_cluster(opened, set_), role or (), node or (), count)
        return
    only_over_ssh({"--serial": count})
    services = services_of(opened, set_)
    if not role and not node:
        with waiting_for("stopping the roles"):
            services.stop()
        _bring_up(services, opened.tasks(), opened.path)
        return
    from deploy.cluster.selection import select
    from deploy.terminal.console import progress_of_start

    names = [task.name for task in select(_kept(opened), role or (), node or ())]
    with progress_of_start() as report:
        now = services.restart(names, report)
    _require_running(now, opened.path)
    say(f"restarted {', '.join(names)}")


@at_the_edge
def status(
    context: Any,
    inventory: str | None = None,
    set_: Names = None,
    limit: Names = None,
    json_: bool = False,
    watch: str | None = None,
) -> None:
    """One line a role or node: address, state, memory, uptime, restarts. Exit code 3 unless all are ready."""
    if watch is not None and json_:
        raise UsageError("--watch and --json: give one of them; a program asks again with --json when it wants to")
    every_seconds = None if watch is None else watching.interval(watch)
    opened = opened_inventory(inventory, set_, json_, as_written=True)
    if opened.connection == "ssh":
        from deploy.commands import ssh_day_two

        ssh_day_two.status(ssh_cluster(opened, set_), limit or (), json_, every_seconds)
        return
    only_over_ssh({"--limit": limit})
    services = services_of(opened, set_)
    if every_seconds is not None:
        watching.watch(every_seconds, lambda: _seen(opened, services))
        return
    now, job_pid = services.status(), services.running_job()
    if json_:
        say_json({**now.to_json(), "job_pid": job_pid})
    else:
        from deploy.terminal.console import show_status

        show_status(now, job_pid)
        other = other_inventory(now.inventory, opened.path)
        if other:
            say(_started_from(other, opened.path))
    if not now.running:
        raise Exit(None, ExitCode.DEGRADED)


def _show_plan(
    opened: "Inventory", overrides: Names, wanted: bool | None, limit: Names, retry: bool, json_: bool
) -> None:
    if opened.connection == "ssh":
        from deploy.commands import ssh_start

        ssh_start.show_plan(ssh_cluster(opened, overrides), limit or (), wanted, json_, retry)
        return
    only_over_ssh({"--limit": limit, "--retry": retry})
    services = services_of(opened, overrides)
    from deploy.converge.plan import plan_start
    from deploy.terminal.console import show_plan

    made = plan_start(_kept(opened), services.status(), opened.jobs.order, wanted, opened.path)
    if json_:
        say_json({"cluster": opened.cluster, **made.to_json()})
    else:
        show_plan(made, opened.path)
    if made.refusals:
        raise Exit(None, ExitCode.BAD_USAGE)


def _seen(opened: "Inventory", services: Services) -> "list[RenderableType]":
    from deploy.terminal.console import status_parts

    job_pid = services.running_job()
    progress = "" if job_pid is None else progress_line(of_coordinator(opened.task("coordinator", 0).metrics_address))
    return status_parts(services.status(), job_pid, progress, watching.columns())


def _kept(inventory: "Inventory") -> "tuple[Task, ...]":
    from deploy.supervisor.launches import kept_tasks

    return kept_tasks(inventory.tasks())


def _wanted(jobs: bool, no_jobs: bool) -> bool | None:
    if jobs and no_jobs:
        raise UsageError("--jobs and --no-jobs: give one of them")
    return True if jobs else False if no_jobs else None


def _bring_up(services: Services, tasks: "Sequence[Task]", inventory: Path, quiet: bool = False) -> None:
    from concurrent.futures import ThreadPoolExecutor

    from deploy.converge.check import open_to_accounts
    from deploy.converge.facts import guard_here
    from deploy.terminal.console import progress_of_start

    try:
        # The roles take longer to start than the question, which therefore costs no time.
        with ThreadPoolExecutor(1) as beside, progress_of_start(quiet=quiet) as report:
            asked = beside.submit(guard_here)
            now = services.start(report)
    except KeyboardInterrupt:
        stop_command = command("deploy stop", inventory)
        say(f"interrupted while the roles start; they stay until `{stop_command}`", error=True)
        raise
    _require_running(now, inventory)
    say(f"running: {_counts(now)}")
    _, accounts, privileges = asked.result()
    if not accounts.holds:
        say(f"warning: {open_to_accounts(tasks, accounts)}", error=True)
    if not privileges.holds:
        say(f"warning: {privileges.line}", error=True)


def _counts(now: ClusterStatus) -> str:
    """`1 ps, 2 workers`."""
    counts = {role: sum(one.role == role for one in now.roles) for role in ("ps", "worker")}
    return f"{counts['ps']} ps, {counts['worker']} workers"


def _require_running(now: ClusterStatus, inventory: Path) -> None:
    if now.running:
        return
    unwell = [f"{role.name} {role.state}: {role.reason}" for role in now.roles if role.reason]
    alive = sum(role.pid is not None for role in now.roles)
    left = f"{alive} of {len(now.roles)} roles {'runs' if alive == 1 else 'run'}"
    ends = {0: "the supervisor", 1: "it"}.get(alive, "them")
    raise DegradedError("\n".join([*unwell, f"{left}; `{command('deploy stop', inventory)}` ends {ends}"]))


def _started_from(other: str, inventory: Path) -> str:
    return f"the cluster was started from {other}, not from {inventory}: both files give it the same name"


ACTIONS = (check, plan, push, storage, start, stop, restart, status, logs, rollback, reset, trust, monitor, ssh)
