"""The service account attacks its node, as an attacker in a role would, and gains no right.

Three nodes, deployed. The account's text reaches no shell, and root does not follow its links.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from tests.lab.environment import environment_seed
from tests.lab.lab import Lab
from tests.lab.node import LabNode
from tests.lab.operator import Operator

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]

HUB = "rpi01"
STATE = "/var/lib/pscluster"
JOBS = f"{STATE}/jobs"
ACCOUNT = "pscluster"
PI = ("job", "pi", "--set", "jobs.pi.samples=1000000")
MARK = "/root/PWNED"


@dataclass(frozen=True)
class Place:
    """The lab, its operator, and the attacked node."""

    lab: Lab
    operator: Operator

    @property
    def hub(self) -> LabNode:
        """The coordinator's node."""
        return self.lab.node(HUB)

    def as_root(self, script: str, *words: str) -> str:
        """The output of a script there."""
        return self.hub.execute("sh", "-c", script, "sh", *words).stdout.strip()

    def as_account(self, script: str, *words: str) -> "subprocess.CompletedProcess[str]":
        """Runs a script as the account there; it may fail."""
        switch = ("setpriv", "--reuid", ACCOUNT, "--regid", ACCOUNT, "--clear-groups", "--no-new-privs")
        command = self.hub.command(*switch, "sh", "-c", script, "sh", *words)
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    def job(self) -> str:
        """The id of the newest job."""
        return self.as_root(f"tail -n 1 {JOBS}/.order")

    def owner(self, path: str) -> str:
        """Owner and mode."""
        return self.as_root('stat -c "%U %a" -- "$1"', path)

    @contextmanager
    def of_an_older_version(self) -> Iterator[None]:
        """The folders of older versions, which all belonged to the account."""
        self.as_root(f"chown {ACCOUNT}: {STATE} {JOBS}; chmod 750 {STATE} {JOBS}")
        try:
            yield
        finally:
            self.as_root(f"[ ! -L {JOBS} ] || rm {JOBS}; [ ! -e {STATE}/kept ] || mv -T {STATE}/kept {JOBS}")
            self.as_root(f"[ ! -L {STATE}/home ] || rm {STATE}/home")
            self.operator.fab("deploy", "start", "--no-jobs")


@pytest.fixture(scope="module")
def place(lab_can_run: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    layer = environment_seed()
    with Lab.up(3, seeds={f"rpi0{number}": layer for number in (1, 2, 3)}) as lab:
        operator = Operator(lab, tmp_path_factory.mktemp("operator"))
        words = [*operator.tool, "init", "--hosts", "192.168.1.16-18"]
        written = subprocess.run(words, capture_output=True, text=True, check=True)
        operator.inventory.write_text(written.stdout.replace("node0", "rpi0").replace("node-", "rpi0"))
        operator.fab("deploy", "trust", "--yes")
        operator.fab("deploy", "start", "--no-jobs")
        operator.fab(*PI)
        yield Place(lab, operator)


def test_root_owns_what_lies_above_the_account_s_folders(place: Place) -> None:
    assert place.owner(STATE) == place.owner(JOBS) == "root 755"
    assert place.owner(f"{STATE}/home") == place.owner(f"{JOBS}/{place.job()}") == f"{ACCOUNT} 750"
    assert place.owner(f"{JOBS}/{place.job()}/output.log").startswith(f"{ACCOUNT} ")
    for script in (f"mv {JOBS} {STATE}/x", f"ln -s /etc {STATE}/x", f"mkdir {JOBS}/x", f"rm -r {JOBS}/.order"):
        assert place.as_account(script).returncode != 0, script


@pytest.mark.parametrize(
    "record",
    [
        '{{"id": "x; touch {mark}; :", "job": "pi", "state": "submitted"}}',
        '{{"id": "{job}", "job": "pi", "state": "running", "pid": "1; touch {mark}"}}',
        '{{"id": "{job}", "job": "pi", "state": "done", "exit_code": 0, "run_folder": "/x; touch {mark}; /runs/.."}}',
        '{{"id": "{job}", "job": "$(touch {mark})", "state": "done"}}',
        "[" * 10000,
    ],
    ids=["id", "pid", "run", "job", "depth"],
)
def test_a_record_that_the_account_wrote_reaches_no_shell(place: Place, record: str) -> None:
    job = place.job()
    state = f"{JOBS}/{job}/state.json"
    text = record.format(mark=MARK, job=job) if record.startswith("{") else record
    assert place.as_account(f'cp {state} {STATE}/home/state; printf %s "$1" >{state}', text).returncode == 0
    try:
        for action in ("cancel", "attach"):
            place.operator.fab("job", action, "--job", job, code=None, timeout_seconds=120)
        listed = place.operator.fab("job", "list", "--json", code=None)
        assert "touch" not in listed.stdout
    finally:
        assert place.as_account(f"cat {STATE}/home/state >{state}").returncode == 0
    for name in place.lab.nodes:
        assert place.lab.node(name).execute("sh", "-c", f"ls {MARK} 2>/dev/null || :").stdout == ""


@pytest.mark.parametrize("folder", [JOBS, f"{STATE}/home"])
def test_a_start_goes_through_no_link_that_the_account_left(place: Place, folder: str) -> None:
    before = place.owner("/etc/cron.d")
    with place.of_an_older_version():
        place.as_root(f"chown {ACCOUNT}: {STATE}/home")
        moved = f"{STATE}/kept" if folder == JOBS else f"{STATE}/old-home"
        assert place.as_account(f"mv {folder} {moved} && ln -s /etc/cron.d {folder}").returncode == 0
        said = place.operator.fab("deploy", "start", "--no-jobs", code=3)
        assert f"{folder}: expected a folder, found a symbolic link" in said.text
        assert place.owner("/etc/cron.d") == before == "root 755"
    assert (place.owner(STATE), place.owner(JOBS)) == ("root 755",) * 2
    assert place.owner(f"{STATE}/home") == f"{ACCOUNT} 750"
    place.operator.fab(*PI)


def test_a_job_is_submitted_through_no_link_and_removes_nothing_there(place: Place) -> None:
    treasure = "/root/treasure"
    place.as_root(f'mkdir -p {treasure}; for n in $(seq 10 99); do touch "{treasure}/20200101T00$n-pi"; done')
    with place.of_an_older_version():
        assert place.as_account(f"mv {JOBS} {STATE}/kept && ln -s {treasure} {JOBS}").returncode == 0
        said = place.operator.fab(*PI, code=1)
        assert "no job can be submitted" in said.text
    assert place.as_root(f"ls {treasure} | wc -l") == "90"
    assert place.owner(treasure) == "root 755"


def test_the_log_of_a_job_is_opened_as_the_account(place: Place) -> None:
    """Root does not open `output.log`, no matter which side wins the race."""
    swap = f'while :; do for job in {JOBS}/*/; do ln -sfn /etc/cron.d/pwned "$job/output.log" 2>/dev/null; done; done'
    switch = ("setpriv", "--reuid", ACCOUNT, "--regid", ACCOUNT, "--clear-groups", "timeout", "120")
    with subprocess.Popen(place.hub.command(*switch, "sh", "-c", swap)):
        try:
            said = [place.operator.fab(*PI, code=None, timeout_seconds=120) for _ in range(2)]
        finally:
            place.as_root("pkill -KILL -u $1 -f 'ln -sf[n]'", ACCOUNT)
    place.as_root("[ ! -e /etc/cron.d/pwned ]")
    assert place.as_account(f"find {JOBS} -name output.log -type l").stdout
    refused = [one.text for one in said if one.code]
    assert all("its log cannot be opened" in text for text in refused)
    place.as_account(f"find {JOBS} -name output.log -type l -delete")
    place.operator.fab(*PI)


def test_a_clock_that_is_set_back_removes_no_newer_job(place: Place) -> None:
    """Ids begin with the time; the job submitted first goes first."""
    place.operator.fab(*PI)
    newest = place.job()
    earlier = "20200101T0000-pi"
    place.as_root(f"mv {JOBS}/{newest} {JOBS}/{earlier}; sed -i 's/^{newest}$/{earlier}/' {JOBS}/.order")
    place.operator.fab(*PI)
    order = place.as_root(f"cat {JOBS}/.order").split()
    assert order[-2] == earlier
    listed = [job["id"] for job in place.operator.fab("job", "list", "--json").json()["jobs"]]
    assert listed[-2:] == order[-2:]
