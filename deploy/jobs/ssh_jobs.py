"""The jobs of a cluster of machines: units on the coordinator's node, which outlive the `fab` that begins them."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property

from cluster.errors import ClusterError, ExitCode
from cluster.logs.terminal import say
from deploy.cluster.cluster import Cluster
from deploy.cluster.fleet import Fleet
from deploy.cluster.places import shared_folders
from deploy.common.command_line import shell
from deploy.common.waiting import waiting_for
from deploy.converge.apply import apply
from deploy.converge.code import COPY_SECONDS, copy_data
from deploy.converge.publication import Publication, publish_changes
from deploy.jobs.attached_job import PendingJobs, reusable, run_attached, run_in_order
from deploy.jobs.node_jobs import NodeJobs
from deploy.jobs.prepared_data import PreparedData, prepared_data
from deploy.jobs.request import needs_data
from deploy.jobs.services import pending_jobs


class SshJobs:
    """`JobServices` over SSH. It connects when it is asked for something."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @property
    def pending(self) -> PendingJobs:
        """See `JobServices`."""
        return pending_jobs(self._cluster)

    @cached_property
    def data(self) -> PreparedData | None:
        """The prepared windows of the inventory's jobs; see `prepared_data`."""
        return prepared_data(self._cluster.inventory, shared_folders(self._cluster.inventory))

    def publications(self) -> Sequence[Publication]:
        """See `JobServices`."""
        return () if self.data is None else (self.data.publication,)

    def refuse_missing_data(self) -> None:
        """See `JobServices`: `publications` looks for them."""

    def run_job(self, job: str, flags: Sequence[str]) -> int:
        """See `JobServices`. The person may leave it running (130); then it goes on without this command."""
        with self._cluster.fleet() as fleet:
            if needs_data(job):
                self._publish_data(fleet)
            return run_attached(self._jobs(fleet, self._overrides(job)), job, flags)

    def run_jobs(self, order: Sequence[str], flags: Sequence[str]) -> int:
        """Jobs one after another, each only when the one before is done; 0, or the first other exit code.

        They follow one another on the coordinator's node: also when this command has gone (130). What is left to submit
        is noted until all are; those of them that an earlier call submitted are not submitted again.
        """
        pending = self.pending

        def noted(ids: Sequence[str]) -> None:
            if len(ids) < len(order):
                pending.note(ids)
            else:
                pending.forget()

        if not order:
            pending.forget()
            return ExitCode.DONE
        with self._cluster.fleet() as fleet:
            if any(map(needs_data, order)):
                self._publish_data(fleet)
            jobs = self._jobs(fleet, ())
            submitted = pending.submitted
            begun = reusable(submitted, order, jobs.records()) if submitted else ()
            if begun:
                noted(begun)
            with_overrides = [(job, self._overrides(job)) for job in order]
            return run_in_order(jobs, with_overrides, flags, begun, noted)

    def running_job(self) -> None:
        """See `JobServices`: no command of this machine runs a job."""

    @contextmanager
    def node_jobs(self) -> Iterator[NodeJobs]:
        """See `JobServices`."""
        with self._cluster.fleet() as fleet:
            yield self._jobs(fleet, ())

    def _overrides(self, job: str) -> list[str]:
        """What a job on the nodes needs beside the inventory: where its windows are there."""
        if not needs_data(job) or self.data is None:
            return []
        return [f"jobs.train.data.source={json.dumps(self.data.local)}"]

    def _jobs(self, fleet: Fleet, more: Sequence[str]) -> NodeJobs:
        inventory = self._cluster.inventory
        (coordinator,) = inventory.of_role("coordinator")
        return NodeJobs(fleet.nodes[coordinator.node], inventory, (*self._cluster.overrides, *more))

    def _publish_data(self, fleet: Fleet) -> None:
        with waiting_for("preparing the recordings, if they are not yet") as tell:
            data = self.data
            if data is not None:
                tell("bringing the recordings to the nodes, where they are not yet")
                self._publish(fleet, data)

    def _publish(self, fleet: Fleet, data: PreparedData) -> None:
        """A job may want other windows than the cluster was started with."""
        inventory = self._cluster.inventory
        folders = shared_folders(inventory)
        publisher = folders.server or inventory.of_role("coordinator")[0].node
        node = fleet.nodes[publisher]
        folder = folders.published(data.publication.kind, data.publication.key)
        if not node.run(["test", "-e", f"{folder}/.complete"], root=True).ok:
            apply(node, "publish", publish_changes(data.publication, folders), lambda change, seconds: None)
        copy = copy_data(data.publication, folders.seen("prepared", data.publication.key))
        # A node that cannot be reached now has no worker either; if it comes back, the others have its work.
        copied = fleet.each(lambda node: node.run(shell(copy), root=True, deadline_seconds=COPY_SECONDS))
        for name, result in copied.items():
            if isinstance(result, ClusterError):
                say(f"{name}: without the windows of this job: {result}", error=True)
            elif not result.ok:
                say(f"{name}: without the windows of this job: {' '.join(result.last_lines)}", error=True)
