"""A whole story on this machine leaves no secret where another process or a reader finds it."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from core.control.client import key_of
from core.control.own_state import state_of_services
from core.inventory.templates import local_inventory
from tests.deploy.monitor.watched import monitored
from tests.deploy.secrets_seen import Seen, in_files, watching
from tests.deploy.typed import PROGRAM, as_process
from tests.hang import HANG_SECONDS
from tests.ports import free_port
from tests.recognise.service.exports import export, windows
from tests.recognise.service.running import PATH, READY, as_json

SENSOR_LOGGER = "/v1/sensor-logger"
LOGGED = {"sessionId": "token", "payload": []}
SETTINGS = "--set jobs.train.epochs=1 --set jobs.train.data.source=synthetic"
ENVIRONMENT = "import os, sys\nprint(dict(os.environ), sys.argv)\n"
"""A person's program that writes down all it was given."""
COORDINATOR = re.compile(r"-m cluster\b")
TOKEN = re.compile(r"/local-[0-9a-f]+/token$")
KEEPERS = ("token", "password", "authority.pem", "service.key")
"""Files that are there to hold a secret, for their owner alone."""


def secrets_below(*folders: Path) -> dict[str, bytes]:
    """What the keepers hold, by path: the longest line of each."""
    found = {}
    for folder in folders:
        for path in folder.rglob("*"):
            if path.is_file() and (path.name in KEEPERS or path.suffix in (".pem", ".key")):
                assert path.stat().st_mode & 0o077 == 0, path
                found[str(path)] = max(path.read_bytes().split(), key=len)
    return found


def does(line: str, folder: Path) -> str:
    """What `fab LINE` said, which succeeds."""
    done = as_process(line, folder)
    assert done.code == 0, done
    return done.stdout + done.stderr


@contextmanager
def serving(folder: Path, log: Path) -> Iterator[str]:
    """`fab serve` with its output in a file, as a service manager has it; its address."""
    words = [*PROGRAM, "serve", "--model", "exported", "--port", "0", "--tls"]
    with (
        log.open("wb") as file,
        subprocess.Popen(words, cwd=folder, stdout=file, stderr=file) as served,
    ):
        try:
            while (found := READY.search(log.read_text())) is None:
                assert served.poll() is None, log.read_text()
            yield f"{found['scheme']}://{found['address']}"
        finally:
            served.send_signal(signal.SIGINT)
            served.wait()


def talk(address: str, token: str) -> None:
    """Requests with the token in each way that the service takes, and with wrong ones."""
    with httpx.Client(base_url=address, verify=False, timeout=HANG_SECONDS) as client:
        body = as_json(windows(1)[:1])
        right = {"Authorization": f"Bearer {token}"}
        assert client.post(f"{PATH}/infer", json=body, headers=right).status_code == 200
        # The token is right, and this model is for no phone.
        assert client.post(f"{SENSOR_LOGGER}?token={token}", json=LOGGED).status_code == 400
        assert client.get(f"/nothing?token={token}", headers=right).status_code == 404
        wrong = {"Authorization": f"Bearer {token}x"}
        assert client.post(f"{PATH}/infer", json=body, headers=wrong).status_code == 401
        assert client.post(f"{SENSOR_LOGGER}?token={token}x", json=LOGGED).status_code == 401
        broken = {**right, "Content-Type": "application/json"}
        assert client.post(f"{PATH}/infer", content=token, headers=broken).status_code == 400


def story(folder: Path) -> None:
    """Start, train, a program, export, serve, monitor, report, stop; all output goes to files."""
    said = [does("deploy start --no-jobs", folder), does(f"job train {SETTINGS}", folder)]
    (folder / "program.py").write_text(ENVIRONMENT)
    said.append(does("job run program.py -- of mine", folder))
    said.append(does("job run --on workers program.py", folder))
    said.append(does("deploy restart --role worker:0", folder))
    export(folder / "exported", 1.0)
    with serving(folder, folder / "serve.log") as address:
        talk(address, (state_of_services(folder) / "token").read_text().strip())
        settings = [f"monitor.port={free_port()}", "monitor.scrape_seconds=1"]
        with monitored(folder / "inventory.yaml", settings) as prometheus:
            prometheus.until('up{job="pscluster-service"} == 1')
            said.append(httpx.get(f"{prometheus.url}/api/v1/status/config").text)
            said.append(httpx.get(f"{prometheus.url}/api/v1/targets").text)
    said.append(does("deploy logs", folder))
    (run,) = folder.glob("runs/*-train")
    said.append(does(f"report --run {run}", folder))
    said.append(does("deploy stop", folder))
    (folder / "said.txt").write_text("\n".join(said))


def roles_of(token: bytes) -> Mapping[str, bytes]:
    """The keys that the roles of the story have."""
    names = ("ps:0", "worker:0", "coordinator:0")
    keys = {name: key_of(token.decode(), name) for name in names}
    return {name: key.encode() for name, key in keys.items() if key is not None}


def allowed(seen: Seen) -> bool:
    """A coordinator has the cluster's token, a role its own key; a keeper holds its secret."""
    if seen.place == seen.secret:
        return True
    if seen.place != "environ":
        return False
    if TOKEN.search(seen.secret) or seen.secret == "coordinator:0":
        return COORDINATOR.search(seen.process) is not None
    role, _, index = seen.secret.partition(":")
    return f"{role}_node" in seen.process and f"--task {index}" in seen.process


@pytest.mark.long
def test_a_whole_story_shows_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = Path(os.environ["XDG_STATE_HOME"], "story")  # short: sockets lie there
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    (folder / "inventory.yaml").write_text(local_inventory(workers=1))
    try:
        with watching() as watch:
            story(folder)
    finally:
        as_process("deploy stop", folder)
    secrets = secrets_below(folder, state)
    (token,) = (secret for path, secret in secrets.items() if TOKEN.search(path))
    assert len(secrets) >= 3, secrets.keys()
    secrets |= roles_of(token)
    assert watch.processes("worker_node")
    assert watch.processes("recognise.service")
    assert watch.processes("program.py")
    found = watch.sightings(secrets) | in_files([folder, state], secrets)
    assert {seen for seen in found if not allowed(seen)} == set()
    assert any(COORDINATOR.search(seen.process) for seen in found), "the watch sees environments"
    assert {seen.place for seen in found} > secrets.keys() - roles_of(token).keys(), "and files"
