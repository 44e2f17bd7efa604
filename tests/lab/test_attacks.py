"""The service account attacks its node, as an attacker in a role would, and gains no right.

Three nodes, deployed. The account's text reaches no shell, and root does not follow its links.
"""

import base64
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from core.inventory import load
from deploy.converge.monitor import MONITOR_PASSWORD
from deploy.monitor.ready import USER
from tests.lab import deployed
from tests.lab.deployed import trusted
from tests.lab.node import LabNode

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]

HUB = "rpi01"
STATE = "/var/lib/pscluster"
JOBS = f"{STATE}/jobs"
ACCOUNT = "pscluster"
PI = ("job", "pi", "--set", "jobs.pi.samples=1000000")
MARK = "/root/PWNED"


class Place(deployed.Place):
    """Three nodes, the first of which is attacked."""

    @property
    def hub(self) -> LabNode:
        """The coordinator's node."""
        return self.lab.node(HUB)

    def as_root(self, script: str, *words: str) -> str:
        """The output of a script there."""
        return self.on(HUB, script, *words)

    def as_account(self, script: str, *words: str) -> "subprocess.CompletedProcess[str]":
        """Runs a script as the account there; it may fail."""
        switch = (
            "setpriv",
            "--reuid",
            ACCOUNT,
            "--regid",
            ACCOUNT,
            "--clear-groups",
            "--no-new-privs",
        )
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
            self.as_root(
                f"[ ! -L {JOBS} ] || rm {JOBS}; [ ! -e {STATE}/kept ] || mv -T {STATE}/kept {JOBS}"
            )
            self.as_root(f"[ ! -L {STATE}/home ] || rm {STATE}/home")
            self.operator.fab("deploy", "start", "--no-jobs")


@pytest.fixture(scope="module")
def place(lab_can_run: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with trusted(tmp_path_factory.mktemp("operator"), 3) as (lab, operator):
        operator.fab("deploy", "start", "--no-jobs")
        operator.fab(*PI)
        yield Place(lab, operator)


def test_root_owns_what_lies_above_the_account_s_folders(place: Place) -> None:
    assert place.owner(STATE) == place.owner(JOBS) == "root 755"
    assert place.owner(f"{STATE}/home") == place.owner(f"{JOBS}/{place.job()}") == f"{ACCOUNT} 750"
    assert place.owner(f"{JOBS}/{place.job()}/output.log").startswith(f"{ACCOUNT} ")
    for script in (
        f"mv {JOBS} {STATE}/x",
        f"ln -s /etc {STATE}/x",
        f"mkdir {JOBS}/x",
        f"rm -r {JOBS}/.order",
    ):
        assert place.as_account(script).returncode != 0, script


def test_each_kind_of_process_is_an_account_that_reads_nothing_of_another_s(place: Place) -> None:
    """Real units under every setting of theirs: the roles have computed for a job by now."""
    show = """\
systemctl list-units --plain --no-legend 'pscluster-ps-*' 'pscluster-worker-*' |
while read -r unit _; do
    ps -o user:32= -p "$(systemctl show --value -p MainPID "$unit")"
done"""
    assert set(place.as_root(show).split()) == {"pscluster-role"}
    # The unit's filter of calls lets a role cage itself.
    caged = place.as_root("journalctl -o cat -u 'pscluster-ps-*' -u 'pscluster-worker-*'")
    said = [line for line in caged.splitlines() if "caged: " in line]
    assert said
    assert all("Landlock ABI" in line and "NO FILTER" not in line for line in said)
    log = f"{JOBS}/{place.job()}/output.log"
    for account, other in (("pscluster-role", 1), (ACCOUNT, 0)):
        command = place.hub.command("setpriv", "--reuid", account, "--regid", account)
        done = subprocess.run(
            [*command, "--clear-groups", "cat", log], capture_output=True, timeout=60
        )
        assert done.returncode == other, done.stderr


ORDER = """
import sys, urllib.error, urllib.request as web
for url in sys.argv[1:]:
    try:
        asked = web.Request(url, method="POST", headers={"X-PSCluster-Request": "1"})
        print(web.urlopen(asked, timeout=9).status)
    except urllib.error.HTTPError as refusal:
        print(refusal.code)
"""


def test_no_account_of_the_coordinator_s_node_gives_a_role_orders(place: Place) -> None:
    """Its address alone was enough; jobs prove by the token that root alone reads."""
    tasks = load(place.operator.inventory).of_role("worker")
    urls = [f"http://{one.metrics_address}/{do}" for one in tasks for do in ("restart", "run/x")]
    for account in ("nobody", "pscluster-role", "root"):
        switch = ("setpriv", "--reuid", account, "--regid", "nogroup", "--clear-groups")
        said = place.hub.execute(*switch, "/usr/bin/python3", "-c", ORDER, *urls).stdout
        assert said.split() == ["403"] * len(urls), account
    unit = ("journalctl", "-q", "-o", "cat", "-u", "pscluster-worker-*")
    for task in tasks:
        begun = place.lab.node(task.node).execute(*unit).stdout
        assert ("-pi begins" in begun, "run x" in begun) == (True, False)


@pytest.mark.parametrize(
    "record",
    [
        '{{"id": "x; touch {mark}; :", "job": "pi", "state": "submitted"}}',
        '{{"id": "{job}", "job": "pi", "state": "running", "pid": "1; touch {mark}"}}',
        (
            '{{"id": "{job}", "job": "pi", "state": "done", "exit_code": 0, "run_folder": "/x;'
            ' touch {mark}; /runs/.."}}'
        ),
        '{{"id": "{job}", "job": "$(touch {mark})", "state": "done"}}',
        "[" * 10000,
    ],
    ids=["id", "pid", "run", "job", "depth"],
)
def test_a_record_that_the_account_wrote_reaches_no_shell(place: Place, record: str) -> None:
    job = place.job()
    state = f"{JOBS}/{job}/state.json"
    if record.startswith("{"):
        text = record.format(mark=MARK, job=job)
    else:
        text = record
    assert (
        place.as_account(f'cp {state} {STATE}/home/state; printf %s "$1" >{state}', text).returncode
        == 0
    )
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
        if folder == JOBS:
            moved = f"{STATE}/kept"
        else:
            moved = f"{STATE}/old-home"
        assert (
            place.as_account(f"mv {folder} {moved} && ln -s /etc/cron.d {folder}").returncode == 0
        )
        said = place.operator.fab("deploy", "start", "--no-jobs", code=3)
        assert f"{folder}: expected a folder, found a symbolic link" in said.text
        assert place.owner("/etc/cron.d") == before == "root 755"
    assert (place.owner(STATE), place.owner(JOBS)) == ("root 755",) * 2
    assert place.owner(f"{STATE}/home") == f"{ACCOUNT} 750"
    place.operator.fab(*PI)


def test_a_job_is_submitted_through_no_link_and_removes_nothing_there(place: Place) -> None:
    treasure = "/root/treasure"
    place.as_root(
        f'mkdir -p {treasure}; for n in $(seq 10 99); do touch "{treasure}/20200101T00$n-pi"; done'
    )
    with place.of_an_older_version():
        moved = place.as_account(f"mv {JOBS} {STATE}/kept && ln -s {treasure} {JOBS}")
        assert moved.returncode == 0
        assert "no job can be submitted" in place.operator.fab(*PI, code=1).text
    assert place.as_root(f"ls {treasure} | wc -l") == "90"
    assert place.owner(treasure) == "root 755"


APP = """
import numpy as np
def init(seed):
    return {"kernel": np.zeros((4, 3), "float32")}
def forward(parameters, statistics, x, training, seed):
    return x @ parameters["kernel"], {}
def data(folder):
    x, y = np.random.default_rng(0).normal(size=(60, 4)).astype("float32"), np.arange(60) % 3
    return {"x_train": x, "y_train": y, "x_test": x[:20], "y_test": y[:20]}
"""


def test_a_taken_over_node_brings_no_code_and_replaces_no_run(place: Place) -> None:
    """The operator's own app comes back; then the node lies about its runs."""
    operator = place.operator
    folder = place.operator.folder
    (folder / "mine.py").write_text(APP)
    # Over the roles: they need nothing of the coordinator's port, which the firewall closes to
    # other nodes.
    short = ("--epochs", "1", "--set", "jobs.train.batch_size=20")
    operator.fab("job", "train", "--app", str(folder / "mine.py"), *short)
    (run,) = [path.parent for path in folder.glob("runs/*-train/fetched.json")]
    before = (run / "model" / "model.json").read_bytes()
    operator.fab(*PI)
    job = place.job()
    there = f"/mnt/pscluster/runs/{run.name}"
    lie = (
        f'sed -i \'s|"run_folder": "[^"]*"|"run_folder": "{there}"|\' {JOBS}/{job}/state.json && '
        f"echo 'print(1)' >>{there}/app/app.py"
    )
    assert place.as_account(lie).returncode == 0
    said = operator.fab("job", "attach", "--job", job, code=1)
    assert f"names {run.name} as its run, expected <time>-pi: it is not fetched" in said.text
    assert (run / "model" / "model.json").read_bytes() == before
    refused = operator.fab("job", "evaluate", "--run", str(run), code=2)
    assert "is no longer the app that the run began with" in refused.text


ASK = """
import http.client, sys
asking = http.client.HTTPConnection(sys.argv[1], 9090, timeout=10)
headers = dict(one.split("=", 1) for one in sys.argv[2:])
asking.request("GET", "/api/v1/query?query=vector(1)", headers=headers)
answer = asking.getresponse()
print(answer.status, answer.getheader("Access-Control-Allow-Origin"))
"""


def test_no_page_of_another_site_reads_the_monitor(place: Place) -> None:
    operator = place.operator
    monitor = "192.168.1.17"
    operator.gives(f"name: rpi02, address: {monitor}, roles: [worker]", "monitor")
    operator.fab("deploy", "monitor")

    def asked(node: str, address: str, *headers: str) -> str:
        return place.lab.node(node).execute("python3", "-c", ASK, address, *headers).stdout.strip()

    password = place.lab.node("rpi02").execute("cat", MONITOR_PASSWORD).stdout.strip()
    words = base64.b64encode(f"{USER}:{password}".encode()).decode()
    known = f"Authorization=Basic {words}"
    foreign = ("Host=evil.example:9090", "Origin=https://evil.example")
    for _ in range(2):
        assert asked("rpi03", monitor, known) == asked("rpi03", monitor, known, *foreign)
        assert asked("rpi03", monitor, known) == "200 None"
        assert asked("rpi03", monitor) == asked("rpi03", monitor, *foreign) == "401 None"
        place.lab.node("rpi02").execute("systemctl", "reload", "pscluster-monitor.service")
    assert "0 changed" in operator.fab("deploy", "monitor").stdout
