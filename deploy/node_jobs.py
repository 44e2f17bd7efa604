"""The jobs of a cluster of machines, seen by the operator: submitted to the coordinator's node, watched, fetched."""

import json
import shlex
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Protocol

from cluster.errors import ClusterError, UsageError
from deploy.hints import command
from deploy.job_submission import names, request_of
from deploy.node_job.folders import JobFolder, JobsRoot
from deploy.node_job.records import JobRecord, JobState
from deploy.places import shared_folders
from deploy.remote.outcome import NodeDeadlineError, NodeUnreachableError, Outcome
from deploy.render.job_unit import NodePlaces, unit_of_job
from deploy.run_archive import pack_command, unpack

if TYPE_CHECKING:
    from cluster.inventory import Inventory

KEPT_JOBS = 50
"""Job folders beyond these, the oldest, go when another job is submitted. Their runs stay."""

_START_SECONDS = 150.0
_CANCEL_SECONDS = 100.0
"""The unit allows 75 s between SIGINT and SIGKILL."""
_FETCH_SECONDS = 600.0
_RECONNECT_DELAYS_SECONDS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
_POLL_SECONDS = 0.5


class JobNode(Protocol):
    """The coordinator's node as far as jobs need it: `deploy.remote.connection.NodeConnection`, or a stand-in."""

    @property
    def name(self) -> str:
        """Its name in the inventory."""

    def run(
        self, command: str, *, deadline_seconds: float = 30.0, stdin: bytes | None = None, root: bool = False
    ) -> Outcome:
        """Run a shell command line to its end."""

    def stream(
        self, command: str, on_line: Callable[[str], None], *, root: bool = False, stop: Event | None = None
    ) -> int:
        """Pass on each line that a simple command writes."""

    def put(
        self, content: Path | bytes, remote: str, *, deadline_seconds: float, root: bool = False, mode: int = 0o644
    ) -> None:
        """Write a file, whole or not at all."""


def runs_on_node(inventory: "Inventory", places: NodePlaces = NodePlaces()) -> str:  # noqa: B008  frozen
    """The folder on the coordinator's node that holds its runs: on the shared storage where there is one."""
    return f"{places.state}/runs" if inventory.storage is None else shared_folders(inventory).runs_mount


class NodeJobs:
    """The jobs of one cluster. Every method raises ClusterError when the node cannot be reached."""

    def __init__(
        self,
        node: JobNode,
        inventory: "Inventory",
        overrides: Sequence[str],
        places: NodePlaces = NodePlaces(),  # noqa: B008  frozen
    ) -> None:
        self._node = node
        self._inventory = inventory
        self._overrides = tuple(overrides)
        self._places = places
        self._root = JobsRoot(Path(places.state))

    @property
    def node(self) -> str:
        """Name of the coordinator's node."""
        return self._node.name

    @property
    def inventory(self) -> "Inventory":
        """The cluster."""
        return self._inventory

    def submit(self, job: str, flags: Sequence[str], after: str = "", more: Sequence[str] = ()) -> str:
        """Start a job with these flags of `python -m cluster` and `more` overrides; its id.

        With `after`, the id of another job, it waits there for that one, and begins when it is done.
        Raises ClusterError with the node's own words when it is refused, because another job runs for one.
        """
        runs = runs_on_node(self._inventory, self._places)
        request = request_of(self._inventory, job, (*self._overrides, *more), flags, runs, after)
        folder = self._new_folder(job)
        self._node.put(request.to_bytes(), str(folder.request), deadline_seconds=60.0, root=True)
        self._node.put(self._inventory.path, str(folder.inventory), deadline_seconds=60.0, root=True)
        user, path = shlex.quote(f"{self._places.user}:"), shlex.quote(str(folder.path))
        begun = self._node.run(
            f"chown -R {user} {path} && systemctl start {unit_of_job(folder.id)}",
            deadline_seconds=_START_SECONDS,
            root=True,
        )
        if not begun.ok:
            self._refuse(folder, begun)
        return folder.id

    def records(self) -> list[JobRecord]:
        """Every job that the node remembers, the oldest first."""
        release, python = shlex.quote(self._places.release), shlex.quote(self._places.python)
        asked = self._node.run(
            f"cd {release} && PYTHONPATH={release} exec {python} -B -m deploy.node_job.report "
            f"--root {shlex.quote(self._places.state)}",
            deadline_seconds=60.0,
            root=True,
        )
        try:
            return [JobRecord.from_json(record) for record in json.loads(asked.text)["jobs"]]
        except (ValueError, KeyError, TypeError):
            said = " ".join(asked.last_lines) or f"it ended with {asked.return_code}"
            raise ClusterError(
                f"{self.node}: its jobs cannot be listed: {said}; "
                f"`{command('deploy start --no-jobs', self._inventory.path)}` installs what is missing"
            ) from None

    def running(self) -> JobRecord | None:
        """The job that runs, if one does."""
        return next((record for record in self.records() if record.state is JobState.RUNNING), None)

    def choose(self, name: str | None) -> JobRecord:
        """The job of that id; without one the job that runs, else the newest. Raises UsageError if there is none."""
        records = self.records()
        found = [record for record in records if name in (None, record.id)]
        if not found:
            there = ", ".join(record.id for record in records[-5:])
            raise UsageError(
                f"--job {name}: the latest are {there}"
                if there
                else f"{self.node} has no job yet: `fab job train` begins one"
            )
        return next((record for record in found if record.state is JobState.RUNNING), found[-1])

    def attach(
        self,
        name: str,
        on_line: Callable[[str], None],
        on_trouble: Callable[[str], None],
        last_lines: int | None = None,
    ) -> JobRecord:
        """Pass on the job's output, from its beginning or its last lines, until it has ended; its record then.

        A connection that breaks is made again a few times, after a word to `on_trouble`, and nothing is lost or
        repeated. Raises NodeUnreachableError or NodeDeadlineError when that does not help: the job goes on.
        """
        log = shlex.quote(str(self._root.job(name).output))
        seen, delays = 0, list(_RECONNECT_DELAYS_SECONDS)

        def passed_on(line: str) -> None:
            nonlocal seen
            seen += 1
            delays[:] = _RECONNECT_DELAYS_SECONDS
            on_line(line)

        begins = last_lines is None
        while True:
            try:
                if not begins:
                    count = self._node.run(f"wc -l < {log}", root=True).text.strip()
                    seen, begins = max(0, int(count or 0) - (last_lines or 0)), True
                record = self.choose(name)
                if record.state is JobState.SUBMITTED:
                    unit = unit_of_job(name)
                    raise ClusterError(
                        f"{self.node}: job {name} was never begun: `systemctl status {unit}` there tells why"
                    )
                until = "" if record.state.ended or record.pid is None else f" -f -s {_POLL_SECONDS} --pid={record.pid}"
                self._node.stream(f"tail -n +{seen + 1}{until} {log}", passed_on, root=True)
                if record.state.ended:
                    return record
            except (NodeUnreachableError, NodeDeadlineError) as error:
                if not delays:
                    raise
                on_trouble(str(error))
                time.sleep(delays.pop(0))

    def cancel(self, name: str) -> JobRecord:
        """End the job, with its result so far if it manages within 75 s; its record then."""
        unit = unit_of_job(self.choose(name).id)
        ended = self._node.run(f"systemctl stop {unit}", deadline_seconds=_CANCEL_SECONDS, root=True)
        record = self.choose(name)
        if not record.state.ended:
            said = " ".join(ended.last_lines)
            raise ClusterError(
                f"{self.node}: job {name} is still {record.state} after `systemctl stop {unit}`: {said}; "
                f"`systemctl kill -s KILL {unit}` there ends it without a result"
            )
        return record

    def fetch(self, record: JobRecord, into: Path, checkpoints: bool = False) -> Path | None:
        """Copy the job's run into the folder `into`; where it lies then, None when the job has left no run."""
        if record.run_folder is None:
            return None
        packed = self._node.run(
            pack_command(record.run_folder, checkpoints), deadline_seconds=_FETCH_SECONDS, root=True
        )
        if not packed.ok:
            raise ClusterError(
                f"{self.node}: {record.run_folder} cannot be fetched: {' '.join(packed.last_lines)}; "
                f"`{command(f'job attach --job {record.id}', self._inventory.path)}` tries again"
            )
        return unpack(packed.stdout, Path(record.run_folder).name, into)

    def _new_folder(self, job: str) -> JobFolder:
        jobs = shlex.quote(str(self._root.jobs))
        old = f"ls -1 | sort | head -n -{KEPT_JOBS} | xargs -r rm -rf --"
        for name in names(job, datetime.now(UTC)):
            # 75: the one failure that another name mends.
            make = f"mkdir {name} || {{ [ -d {name} ] && exit 75; exit 1; }}"
            made = self._node.run(f"mkdir -p {jobs} && cd {jobs} && {{ {make}; }} && {old}", root=True)
            if made.ok:
                return self._root.job(name)
            if made.return_code != 75:
                raise ClusterError(
                    f"{self.node}: no job can be submitted: {' '.join(made.last_lines)}; "
                    f"`{command('deploy check', self._inventory.path)}` looks at its disk"
                )
        raise ClusterError(f"{self.node}: a thousand jobs were submitted in one minute: wait for the next")

    def _refuse(self, folder: JobFolder, begun: Outcome) -> None:
        log, path = shlex.quote(str(folder.output)), shlex.quote(str(folder.path))
        # A job that began has its state, and is listed as failed; what was refused leaves nothing.
        said = self._node.run(
            f"tail -n 3 {log} 2>/dev/null; [ -e {path}/state.json ] || rm -rf {path}", root=True
        ).text.strip()
        why = " ".join(said.split()) or " ".join(begun.last_lines)
        raise ClusterError(f"{self.node}: the job was not begun: {why}")
