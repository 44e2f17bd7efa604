"""`check`, `plan`, `start`, `push` and `storage` for `connection: ssh`."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from invoke.exceptions import Exit

from cluster.errors import ClusterError, ExitCode, UsageError
from cluster.logs.terminal import say, say_json
from deploy.cluster.fleet import Fleet
from deploy.cluster.ssh_cluster import SshCluster
from deploy.commands.edge import end_as_the_job_did
from deploy.common.hints import command
from deploy.common.waiting import Say, waiting_for
from deploy.converge import quorum
from deploy.converge.apply import StepFailure
from deploy.converge.change import Change
from deploy.converge.deployment import Deployment, Survey, findings, plan, survey
from deploy.converge.desired import PHASES, Wish
from deploy.converge.pruning import prune, prune_wheels
from deploy.converge.publication import Publication, of_wheelhouse
from deploy.converge.reachability import unreachable
from deploy.converge.recap import Recap, to_do_again
from deploy.jobs.request import needs_data
from deploy.monitor.files import url as monitor_url
from deploy.release.wheelhouse import Wheelhouse
from deploy.terminal.deployment_console import progress_of_deployment, show_plans, show_recap

PUSH_PHASES = ("prepare", "mounts", "publish", "code")
LOOKING = "looking at the nodes"
STORAGE_PHASES = ("prepare", "storage", "mounts", "publish")
MONITOR_PHASES = ("prepare", "firewall", "monitor")

Plans = Mapping[str, Mapping[str, Sequence[Change]]]


@dataclass(frozen=True)
class Outlook:
    """What was found before anything is changed, and what would be changed."""

    wish: Wish
    survey: Survey
    unfit: Mapping[str, StepFailure]
    plans: Plans

    @property
    def changes(self) -> int:
        """How many changes the plans hold."""
        return sum(len(changes) for phase in self.plans.values() for changes in phase.values())

    @property
    def counts_as_start(self) -> bool:
        """Whether the jobs run after it: a unit or a link changes."""
        return any(
            change.kind in ("unit", "link")
            for phase in self.plans.values()
            for changes in phase.values()
            for change in changes
        )


def check(cluster: SshCluster, for_programs: bool) -> None:
    """Everything that would make a start fail, at once; exit code 1 with a problem."""
    from deploy.terminal.console import show_findings

    wish = Wish(cluster.inventory, cluster.release)
    with cluster.fleet() as fleet, waiting_for(LOOKING):
        seen = survey(fleet, wish)
        found = findings(wish, seen, cluster.memory(seen))
    found = (*found, *cluster.operator_findings())
    if for_programs:
        say_json({"cluster": cluster.inventory.cluster, "findings": [one.to_json() for one in found]})
    else:
        show_findings(found)
    if any(one.level == "problem" for one in found):
        raise Exit(None, ExitCode.FAILED)


def show_plan(
    cluster: SshCluster, limit: Sequence[str], jobs: bool | None, for_programs: bool, retry: bool = False
) -> None:
    """What a start would do, with the texts that change."""
    names = _names(cluster, limit, retry)
    with_data = jobs is not False and any(map(needs_data, cluster.inventory.jobs.order))
    with cluster.fleet() as fleet, waiting_for(LOOKING) as tell:
        outlook = look(cluster, fleet, names, with_data, tell)
    if for_programs:
        say_json({"cluster": cluster.inventory.cluster, **plans_json(outlook)})
    else:
        show_plans(outlook.plans, outlook.unfit)
        if outlook.changes:
            hint = command("deploy start", cluster.inventory.path)
            say(f"{outlook.changes} to change; `{hint}` does it")
        else:
            say("nothing to change")
    if outlook.unfit:
        raise Exit(None, ExitCode.DEGRADED)


def plans_json(outlook: Outlook) -> dict[str, object]:
    """Plain values."""
    return {
        "changes": outlook.changes,
        "phases": {
            phase: {node: [change.to_json() for change in changes] for node, changes in nodes.items() if changes}
            for phase, nodes in outlook.plans.items()
        },
        "unfit": {name: failure.to_json() for name, failure in outlook.unfit.items()},
    }


def look(
    cluster: SshCluster, fleet: Fleet, names: Sequence[str], with_data: bool, tell: Say,
    phases: Sequence[str] = PHASES,
) -> Outlook:  # fmt: skip
    """Survey and plan. Wheels that a node needs in one of the phases are downloaded here if the cache has none.

    `tell` is told what takes time.
    """
    wish = Wish(cluster.inventory, cluster.release)
    seen = survey(fleet, wish, asked(cluster, names, phases))
    unfit = dict(seen.lost)
    for one in findings(wish, seen, cluster.memory(seen)):
        if one.level == "problem" and one.node not in unfit:
            unfit[one.node] = StepFailure(one.node, "facts", one.topic, "", None, (one.line,), "")
    fit = {name: facts for name, facts in seen.facts.items() if name not in unfit}
    publications: list[Publication] = []
    wheelhouses: dict[str, Wheelhouse] = {}
    if fit and {"publish", "code"} & {*phases}:
        missing = {
            (facts.python_version or "", facts.machine)
            for facts in fit.values()
            if wish.release.environment_for(facts) not in facts.environments
        }
        for python, machine in sorted(missing):
            tell(f"packages for Python {python} on {machine}: downloading what the cache lacks")
            wheelhouse = cluster.wheelhouse(python, machine)
            wheelhouses[wheelhouse.key] = wheelhouse
            publications.append(of_wheelhouse(wheelhouse))
    if with_data:
        tell("preparing the recordings, if they are not yet")
        publications += [] if cluster.data is None else [cluster.data.publication]
    wish = Wish(cluster.inventory, cluster.release, tuple(publications), wheelhouses)
    plans = plan(wish, fit)
    if wish.publisher not in names:
        for phase in set(PHASES) - set(STORAGE_PHASES):
            plans[phase].pop(wish.publisher, None)
    return Outlook(wish, seen, unfit, plans)


def asked(cluster: SshCluster, names: Sequence[str], phases: Sequence[str]) -> tuple[str, ...]:
    """The nodes, and the one that serves the shared folder: it has to know a new node before that can mount it."""
    if "mounts" not in phases:
        return tuple(names)
    return tuple(dict.fromkeys((*names, Wish(cluster.inventory, cluster.release).publisher)))


def converge(
    cluster: SshCluster, fleet: Fleet, action: str, names: Sequence[str], phases: Sequence[str], with_data: bool,
    before: Callable[[Outlook], None] = lambda outlook: None,
) -> tuple[Recap, Outlook, bool]:  # fmt: skip
    """Bring the nodes to what the inventory says: the recap (written and shown), and whether roles could be started.

    `before` is called before the first change, if there may be one.
    """
    recap = Recap(action, cluster.inventory.cluster, asked(cluster, names, phases), tuple(names))
    kept_as = cluster.recap_name(action)
    begun = time.monotonic()
    with progress_of_deployment() as event:
        event("", LOOKING)
        outlook = look(cluster, fleet, names, with_data, lambda words: event("", words), phases)
        deployment = Deployment(fleet, outlook.wish, recap, event, begun)
        for failure in outlook.unfit.values():
            deployment.lose(failure)
        reason = quorum.missing(cluster.inventory, recap.failures)
        if reason:
            recap.notes.append(f"nothing was changed: {reason}")
            whole = False
        else:
            before(outlook)
            if "code" in phases:
                cluster.unfinished_rollback.forget()
            if outlook.changes:
                recap.write(cluster.deployments, kept_as)  # what stays of a deployment that is killed
            try:
                whole = deployment.carry_out({phase: outlook.plans[phase] for phase in phases}, phases)
            except BaseException:
                deployment.finish().write(cluster.deployments, kept_as)
                raise
        if recap.changed and whole:
            _verify(cluster, fleet, outlook, deployment, phases)
        if whole and "services" in phases:
            lost = unreachable(cluster.inventory, fleet, set(names) - set(recap.failures))
            for failure in lost:
                deployment.lose(failure)
            reason = quorum.missing(cluster.inventory, recap.failures)
            if reason:
                recap.notes.append(f"no job can run: {reason}")
    recap.complete = whole and not recap.notes
    deployment.finish()
    path = recap.write(cluster.deployments, kept_as)
    show_recap(recap, path)
    return recap, outlook, whole


def _verify(cluster: SshCluster, fleet: Fleet, outlook: Outlook, deployment: Deployment, phases: Sequence[str]) -> None:
    """What was done is looked at again: whatever still differs has not worked, whatever its exit code said."""
    names = [name for name in outlook.survey.facts if name not in deployment.recap.failures]
    seen = survey(fleet, outlook.wish, names)
    for failure in seen.lost.values():
        deployment.lose(failure)
    again = plan(outlook.wish, seen.facts)
    for phase in phases:
        for name, changes in again[phase].items():
            if changes and name in outlook.plans[phase]:
                words = "; ".join(
                    f"{change.action} {change.kind} {change.subject}: {change.detail}" for change in changes
                )
                hint = "run it again; if it stays so, something on the node changes it back"
                deployment.lose(
                    StepFailure(name, "verify", "still to change after it was done", "", None, (words,), hint)
                )


def start(cluster: SshCluster, limit: Sequence[str], retry: bool, jobs: bool | None, quiet: bool) -> None:
    """Converge, then run the inventory's jobs; exit code 3 when a node was lost on the way."""
    from deploy.cluster.ssh_services import SshServices

    names = _names(cluster, limit, retry)
    gone = cluster.nodes_gone()
    if gone:
        say(
            f"no longer in the inventory, and not touched: {', '.join(gone)}; `fab deploy reset --limit NODE` with the "
            "inventory that still has them ends their roles",
            error=True,
        )
    pending = cluster.pending_jobs
    if jobs and not pending.noted:
        pending.note()

    def note_jobs(outlook: Outlook) -> None:
        if jobs is not False and outlook.counts_as_start and not pending.noted:
            pending.note()

    with cluster.fleet() as fleet:
        with_data = jobs is not False and any(map(needs_data, cluster.inventory.jobs.order))
        recap, outlook, whole = converge(cluster, fleet, "start", names, PHASES, with_data, note_jobs)
        if whole and recap.changed:
            _tidy(cluster, fleet, outlook, [name for name in names if name not in recap.failures])
    if not whole or recap.notes:
        raise Exit(None, ExitCode.DEGRADED)
    cluster.remember_nodes()
    order = cluster.inventory.jobs.order
    if jobs is False:
        later = "; the next start without it runs those that an earlier one did not submit" if pending.noted else ""
        say(f"jobs not run: --no-jobs{later}")
    elif not pending.noted:
        say("already running, jobs not repeated (--jobs runs them)")
    else:
        if jobs is None and not outlook.counts_as_start:
            say("an earlier start did not come to submit all its jobs: they are run now")
        services = SshServices(cluster.inventory, cluster.overrides)
        end_as_the_job_did(services.run_jobs(order, ["--quiet"] if quiet else []))
    if recap.failures:
        raise Exit(None, ExitCode.DEGRADED)


def _tidy(cluster: SshCluster, fleet: Fleet, outlook: Outlook, names: Sequence[str]) -> None:
    """Remove what no node needs any more. What cannot be removed is told and keeps nobody from working."""
    done = prune(fleet, names, cluster.inventory.deployment.keep_releases)
    problems = [str(result) for result in done.values() if isinstance(result, ClusterError)]
    facts = outlook.survey.facts.values()
    wanted = {outlook.wish.release.environment_for(seen) for seen in facts} - {None}
    needed = {key for seen in facts for key in seen.environments} | {key for key in wanted if key is not None}
    if set(names) == {node.name for node in cluster.inventory.nodes}:  # else nobody knows what the others need
        try:
            prune_wheels(fleet.nodes[outlook.wish.publisher], outlook.wish.folders, needed)
        except ClusterError as error:
            problems.append(str(error))
    for problem in problems:
        say(f"left in place: {problem}", error=True)


def run_phases(cluster: SshCluster, action: str, limit: Sequence[str]) -> None:
    """`push` and `storage`: a part of a start."""
    phases = PUSH_PHASES if action == "push" else STORAGE_PHASES
    with_data = action == "storage" and any(map(needs_data, cluster.inventory.jobs.order))
    with cluster.fleet() as fleet:
        recap, _, whole = converge(cluster, fleet, action, cluster.chosen_nodes(limit), phases, with_data)
    if recap.failures or not whole:
        raise Exit(None, ExitCode.DEGRADED)


def start_monitor(cluster: SshCluster) -> None:
    """`monitor`: the part of a start that concerns the monitor's node."""
    node = cluster.inventory.monitor_node
    assert node is not None  # refused before
    with cluster.fleet() as fleet:
        recap, _, whole = converge(cluster, fleet, "monitor", (node,), MONITOR_PHASES, with_data=False)
    if recap.failures or not whole:
        raise Exit(None, ExitCode.DEGRADED)
    say(f"Prometheus: {monitor_url(cluster.inventory)}")


def _names(cluster: SshCluster, limit: Sequence[str], retry: bool) -> tuple[str, ...]:
    if not retry:
        return cluster.chosen_nodes(limit)
    if limit:
        raise UsageError("--limit and --retry: give one of them")
    again = to_do_again(cluster.deployments)
    names = tuple(node.name for node in cluster.inventory.nodes if node.name in again.nodes)
    if not names:
        raise UsageError("--retry: no node failed in the last deployment: leave --retry out")
    why = "the last deployment was cut short; " if again.cut_short else ""
    say(f"{why}once more: {', '.join(names)}", error=True)
    return names
