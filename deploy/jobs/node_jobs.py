"""The jobs on the coordinator's node: submitted, listed, followed, cancelled, fetched."""

import hashlib
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from cluster.apps.files import AppFiles, own_digests, remember_digest
from core.ground.errors import ClusterError, UsageError, reason_of
from core.ground.parcel import Content, blocks_of, packed, room_on_disk, unpack_folder
from core.ground.waiting import Backoff, pause
from core.logs import say
from deploy.cluster.cluster import as_overrides
from deploy.cluster.connector import (
    CommandResult,
    Connector,
    NodeDeadlineError,
    NodeOutputError,
    NodeUnreachableError,
)
from deploy.cluster.places import NodePlaces
from deploy.common.command_line import command
from deploy.common.interrupts import waiting_for
from deploy.jobs.apps import FetchedRun
from deploy.jobs.program_task import PROGRAM_ARCHIVE, packed_program
from deploy.jobs.records import (
    APP_ARCHIVE,
    APP_FOLDER,
    JobFolder,
    JobRecord,
    JobsRoot,
    JobState,
    Submission,
    is_job_id,
    keep_submission,
    read_submission,
    records_listed,
)
from deploy.jobs.request import (
    MOST_PACKED_BYTES,
    RUN,
    SWEEP,
    JobRequest,
    first_id,
    pack_command,
    request_of,
    to_bytes,
)
from deploy.render.units import unit_of_job
from deploy.rooted.commands import drop_job, file_list, new_job

if TYPE_CHECKING:
    from cluster.programs.program import ProgramRequest
    from core.inventory import Inventory

KEPT_JOBS = 50
"""A submission removes the folders of ended jobs beyond these, the oldest first. Their runs stay.
"""

_SUBMIT_SECONDS = 60.0
_BYTES_A_SECOND = 128 << 10
"""What the slowest link carries of an app or a program, of 64 MiB at most."""
_START_SECONDS = 150.0
_CANCEL_SECONDS = 100.0
"""The unit allows 75 s between SIGINT and SIGKILL."""
_FETCH_SECONDS = 600.0
_RECONNECT_DELAYS_SECONDS = tuple(map(Backoff().seconds, range(1, 7)))
_POLL_SECONDS = 0.5


class NodeJobs:
    """The jobs of one cluster. Every method raises ClusterError when the node cannot be reached."""

    def __init__(
        self,
        node: Connector,
        inventory: "Inventory",
        overrides: Sequence[str],
        places: NodePlaces = NodePlaces(),  # noqa: B008  frozen
    ) -> None:
        self.node = node.name
        self.inventory = inventory
        self._node = node
        self._overrides = tuple(overrides)
        self.places = places
        self._root = JobsRoot(Path(places.state))

    def submit(
        self,
        job: str,
        flags: Sequence[str],
        after: str = "",
        more: Sequence[str] = (),
        app: AppFiles | None = None,
        program_request: "ProgramRequest | None" = None,
        token: str = "",
        files: Mapping[str, bytes] = MappingProxyType({}),
    ) -> str:
        """Start a job with flags of `python -m cluster`, `more` overrides, an app; return its id.

        With `after`, the id of another job, it begins when that one is done. The program of a
        `program_request` goes with it; its processes on other nodes show the `token`. So do
        `files`, those of a sweep; with a token, its runs are trained by the workers' nodes alone,
        without the cluster's roles. Raises ClusterError with the node's reason for a refusal, such
        as another running job.
        """
        runs = self.places.runs(self.inventory)
        digest = ""
        if app is not None:
            digest = app.digest
            remember_digest(digest, str(app.source))
        addresses = as_overrides(self.inventory)
        request = request_of(
            self.inventory,
            job,
            (*self._overrides, *more, *addresses),
            flags,
            runs,
            after,
            program_request,
        )
        if SWEEP in files and token:
            request = replace(request, roles={})
        submission = Submission.of(job, time.time(), digest, flags)
        request = replace(request, app=digest, token=token, apps=own_digests())
        with waiting_for(f"submitting {job} to {self.node}"), ExitStack() as archives:
            contents: dict[str, Content] = {**files}
            if program_request is not None:
                archive = packed_program(Path(program_request.program))
                contents[PROGRAM_ARCHIVE] = archives.enter_context(archive)
            if app is not None:
                contents[APP_ARCHIVE] = archives.enter_context(packed(app.streams(APP_FOLDER)))
            folder = self._new_folder(job, request, contents)
            self._note(folder, submission)
            begun = begin(self._node, folder)
        if not begun.ok:
            self._refuse(folder, begun)
        return folder.id

    def records(self) -> list[JobRecord]:
        """Return every job of the node, the oldest first."""
        # As the account: it reads its own files, and root would follow its links.
        environment = ["env", f"PYTHONPATH={self.places.release}", "PYTHONSAFEPATH=1"]
        report = [
            self.places.python,
            "-B",
            "-m",
            "deploy.jobs.node_job",
            "--list",
            "--root",
            self.places.state,
        ]
        answer = self._node.run(
            [*environment, *report], deadline_seconds=60.0, user=self.places.user
        )
        try:
            return records_listed(answer.stdout)
        except ValueError as problem:
            if not answer.ok:
                reason = " ".join(answer.last_lines)
            else:
                reason = str(problem)
            raise ClusterError(
                f"{self.node}: its jobs cannot be listed: {reason};"
                f" `{command('deploy start --no-jobs', self.inventory.path)}` installs what is"
                " missing"
            ) from None

    def choose(self, name: str | None) -> JobRecord:
        """The job of that id; without an id the running job, else the newest.

        Raises UsageError if there is none.
        """
        records = self.records()
        candidates = [record for record in records if name in (None, record.id)]
        if not candidates:
            latest_ids = ", ".join(record.id for record in records[-5:])
            raise UsageError(
                f"--job {name}: the latest are {latest_ids}"
                if latest_ids
                else f"{self.node} has no job yet: `fab job train` begins one"
            )
        return next(
            (record for record in candidates if record.state is JobState.RUNNING), candidates[-1]
        )

    def attach(
        self,
        name: str,
        on_line: Callable[[str], None],
        on_trouble: Callable[[str], None],
        last_lines: int | None = None,
    ) -> JobRecord:
        """Pass on the job's output, all or its last lines, until it has ended; return its record.

        A broken connection is opened again a few times, after a line to `on_trouble`; no line is
        lost or repeated. Raises NodeUnreachableError or NodeDeadlineError when that fails: the job
        continues.
        """
        log = str(self._root.job(name).output)
        user = self.places.user
        lines_passed = 0
        delays = list(_RECONNECT_DELAYS_SECONDS)

        def passed_on(line: str) -> None:
            nonlocal lines_passed
            lines_passed += 1
            delays[:] = _RECONNECT_DELAYS_SECONDS
            on_line(line)

        begins = last_lines is None
        while True:
            try:
                if not begins:
                    count = self._node.run(["wc", "-l", log], user=user).text.partition(" ")[0]
                    lines_passed = max(0, _count(count) - (last_lines or 0))
                    begins = True
                record = self.choose(name)
                if record.state is JobState.SUBMITTED:
                    unit = unit_of_job(name)
                    raise ClusterError(
                        f"{self.node}: job {name} did not begin: `systemctl status {unit}` there"
                        " shows why"
                    )
                alive = not record.state.ended and record.pid is not None
                if alive:
                    until = ["-f", "-s", str(_POLL_SECONDS), f"--pid={record.pid}"]
                else:
                    until = []
                self._node.stream(
                    ["tail", "-n", f"+{lines_passed + 1}", *until, log], passed_on, user=user
                )
                if record.state.ended:
                    return record
            except (NodeUnreachableError, NodeDeadlineError) as error:
                if not delays:
                    raise
                on_trouble(str(error))
                pause(delays.pop(0))

    def cancel(self, name: str) -> JobRecord:
        """End the job, with its result so far if it writes that within 75 s; its record then."""
        unit = unit_of_job(self.choose(name).id)
        ended = self._node.run(
            ["systemctl", "stop", unit], deadline_seconds=_CANCEL_SECONDS, root=True
        )
        record = self.choose(name)
        if not record.state.ended:
            reason = " ".join(ended.last_lines)
            raise ClusterError(
                f"{self.node}: job {name} is still {record.state} after `systemctl stop {unit}`:"
                f" {reason}; `systemctl kill -s KILL {unit}` there ends it without a result"
            )
        return record

    def fetch(self, record: JobRecord, into: Path, checkpoints: bool = False) -> Path | None:
        """Copy the job's run into the folder `into`; return its path, None where it left no run.

        It gets a mark of node and job. Raises ClusterError for a run that cannot be the job's, that
        has code which was not sent with the job, or that would replace one of another job.
        """
        if record.run_folder is None:
            return None
        name = Path(record.run_folder).name
        run = FetchedRun(
            self.node, record.id, read_submission(self.inventory.cluster, self.node, record.id)
        )
        run.refuse_name(name)
        run.refuse_target(into / name)
        again = f"`{command(f'job attach --job {record.id}', self.inventory.path)}` tries again"
        try:
            into.mkdir(parents=True, exist_ok=True)
            room = room_on_disk(into)
            # Beside the run: $TMPDIR is memory on many machines.
            archive = tempfile.TemporaryFile(prefix=".pscluster-run-", dir=into)  # noqa: SIM115
        except OSError as problem:
            raise ClusterError(
                f"{into}: the run cannot be kept here: {reason_of(problem)}; {again}"
            ) from problem
        with archive:
            try:
                packed = self._node.run(
                    pack_command(record.run_folder, checkpoints),
                    deadline_seconds=_FETCH_SECONDS,
                    user=self.places.user,
                    kept_bytes=min(MOST_PACKED_BYTES, room),
                    into=archive,
                )
            except NodeOutputError as problem:
                spare = f"; {into} has {room:,} bytes to spare: free some"
                if room > MOST_PACKED_BYTES:
                    spare = "; the largest run that is fetched has that size"
                raise ClusterError(f"{problem}{spare}; {again}") from problem
            if not packed.ok:
                reason = " ".join(packed.last_lines)
                raise ClusterError(
                    f"{self.node}: {record.run_folder} cannot be fetched: {reason}; {again}"
                )
            archive.seek(0)
            unpacked = unpack_folder(archive, name, into, RUN, run.checked, run.most_bytes_of)
        if run.left_out:
            say(
                f"{self.node}: {len(run.left_out)} files that no run has stay there, such as"
                f" {run.left_out[0]:.200}",
                error=True,
            )
        return unpacked

    def _new_folder(self, job: str, request: JobRequest, files: Mapping[str, Content]) -> JobFolder:
        contents = {
            "request.json": to_bytes(request),
            "inventory.yaml": self.inventory.path.read_bytes(),
            **files,
        }
        job_folder = new_folder(self._node, self.places, job, contents)
        if isinstance(job_folder, JobFolder):
            return job_folder
        path = self.inventory.path
        raise ClusterError(
            f"{self.node}: no job can be submitted: {' '.join(job_folder.last_lines)}; "
            f"`{command('deploy start --no-jobs', path)}` puts its folders right, "
            f"`{command('deploy check', path)}` looks at its disk"
        )

    def _drop(self, folder: JobFolder) -> None:
        self._node.run(drop_job(str(self._root.jobs), folder.id), root=True)

    def _note(self, folder: JobFolder, submission: Submission) -> None:
        try:
            keep_submission(self.inventory.cluster, self.node, folder.id, submission)
        except ClusterError:
            self._drop(folder)
            raise

    def _refuse(self, folder: JobFolder, begun: CommandResult) -> None:
        output_tail = self._node.run(["tail", "-n", "3", str(folder.output)], user=self.places.user)
        # A job that began has a record, and is listed as failed; a refused one leaves nothing.
        self._drop(folder)
        why = " ".join(output_tail.text.split())
        if not why:  # it failed before it opened its log
            of_unit = (  # not -u: systemd's own lines come last
                f"_SYSTEMD_UNIT={unit_of_job(folder.id)}"
            )
            heard = self._node.run(
                ["journalctl", "-q", "-o", "cat", "--no-pager", "-n", "3", of_unit], root=True
            )
            why = " ".join((*heard.last_lines, *begun.last_lines))
        raise ClusterError(f"{self.node}: the job did not begin: {why}")


def new_folder(
    node: Connector, places: NodePlaces, job: str, files: Mapping[str, Content]
) -> JobFolder | CommandResult:
    """Make the folder of a job with these files in it; what the node said where it cannot."""
    root = JobsRoot(Path(places.state))
    sent = [_listed(name, files[name]) for name in sorted(files)]
    first = first_id(job, datetime.now(UTC))
    answer = node.run(
        new_job(str(root.jobs), places.user, KEPT_JOBS, first, file_list(sent)),
        stdin=chain.from_iterable(blocks_of(files[name]) for name in sorted(files)),
        deadline_seconds=_SUBMIT_SECONDS + sum(size for _, _, size in sent) / _BYTES_A_SECOND,
        root=True,
    )
    name = answer.text.strip().rpartition("\n")[
        2
    ]  # a start file of the account may print before it
    if answer.ok and is_job_id(name):
        return root.job(name)
    return answer


def _listed(name: str, content: Content) -> tuple[str, str, int]:
    digest = hashlib.sha256()
    size_bytes = 0
    for block in blocks_of(content):
        digest.update(block)
        size_bytes += len(block)
    return name, digest.hexdigest(), size_bytes


def begin(node: Connector, folder: JobFolder) -> CommandResult:
    """Start the unit of a job whose folder is there."""
    command_line = ["systemctl", "start", unit_of_job(folder.id)]
    return node.run(command_line, deadline_seconds=_START_SECONDS, root=True)


def _count(text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) < 12:
        return int(text)
    return 0
