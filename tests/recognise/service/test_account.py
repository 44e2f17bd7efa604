"""A service that root starts is not root while it answers, and root's commands work on with it."""

import os
import signal
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx
import psutil
import pytest

from core.accounts import MODELS_ACCOUNT, SERVICE_ACCOUNT
from deploy.common.project import ROOT, environment_for_any_folder
from recognise.service.authority import AUTHORITY, PUBLIC, SERVER, parsed
from tests.deploy.playing import eventually
from tests.habits import needs
from tests.ran import python
from tests.recognise.service.exports import export, windows
from tests.recognise.service.running import (
    PATH,
    READY,
    as_json,
    command,
    manage,
    models_of,
    service,
    state_of,
    wait_until_served,
)
from tests.recognise.service.streaming import session


@pytest.fixture(autouse=True)
def as_root() -> None:
    """Another account has nothing to give up."""
    needs.root("a service that gives root up")


def said(process: int, thread: int, name: str) -> list[str]:
    lines = Path(f"/proc/{process}/task/{thread}/status").read_text().splitlines()
    return next(line.split()[1:] for line in lines if line.startswith(f"{name}:"))


def assert_unprivileged(process: psutil.Process, uid: int) -> None:
    for thread in process.threads():
        for name in ("Uid", "Gid"):
            assert said(process.pid, thread.id, name) == 4 * [str(uid)]
        assert said(process.pid, thread.id, "NoNewPrivs") == ["1"]
        assert said(process.pid, thread.id, "Groups") == []
        for name in ("CapPrm", "CapEff", "CapAmb"):
            assert int(said(process.pid, thread.id, name)[0], 16) == 0


def assert_all_unprivileged(process: int) -> None:
    main = psutil.Process(process)
    assert_unprivileged(main, SERVICE_ACCOUNT)
    children = main.children(recursive=True)
    assert len(children) >= 2
    for each in children:
        assert_unprivileged(each, MODELS_ACCOUNT)


@contextmanager
def by_fab(folder: Path, *words: str) -> Iterator[tuple[int, httpx.Client]]:
    """`fab serve --tls` in the folder: the number of the service, and a client that trusts it."""
    fab = (str(ROOT / ".venv/bin/fab"), "-r", str(ROOT), "serve", "--port", "0", "--tls")
    with subprocess.Popen(
        [*fab, *words], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            found = READY.fullmatch(process.stdout.readline())
            assert found is not None
            state = state_of(folder)
            headers = {"Authorization": f"Bearer {(state / 'token').read_text().strip()}"}
            trust = ssl.create_default_context(cafile=state / PUBLIC)
            url = f"https://{found['address']}"
            with httpx.Client(base_url=url, headers=headers, verify=trust) as client:
                (child,) = psutil.Process(process.pid).children()
                yield child.pid, client
        finally:
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        assert process.returncode == 130
        assert "Traceback" not in errors


def secrets_of(path: Path) -> list[bytes]:
    """The secret number of a key as OpenSSL keeps it, and as it is written; parts of its text."""
    found = parsed(path.read_bytes())
    assert found is not None
    number = found.key.private_numbers().private_value
    text = b"".join(path.read_bytes().splitlines()[1:3])
    parts = [text[at : at + 16] for at in (48, 56, 64, 72)]  # after what every such key begins with
    return [number.to_bytes(32, "little"), number.to_bytes(32, "big"), *parts]


def remembers(process: int, secrets: list[bytes]) -> bool:
    """Whether one of them is anywhere in a process's memory that it may write to."""
    maps = Path(f"/proc/{process}/maps").read_text().splitlines()
    with Path(f"/proc/{process}/mem").open("rb", buffering=0) as memory:
        for line in maps:
            span, rights, *_ = line.split()
            if not rights.startswith("rw"):
                continue
            start, end = (int(each, 16) for each in span.split("-"))
            memory.seek(start)
            content = memory.read(end - start)
            if any(each in content for each in secrets):
                return True
    return False


def test_fab_serve_by_root_answers_over_tls_as_an_account_of_its_own(tmp_path: Path) -> None:
    export(tmp_path / "one")
    state = state_of(tmp_path)
    kept = []
    for words in (("--model", "one"), ()):  # a second start has what the first one left
        with by_fab(tmp_path, *words) as (process, client):
            assert_all_unprivileged(process)
            answer = client.post(f"{PATH}/infer", json=as_json(windows(1)))
            assert answer.status_code == 200
            assert client.get("/authority.crt").content == (state / PUBLIC).read_bytes()
            secrets = [state / name for name in ("token", AUTHORITY, SERVER)]
            assert {(each.stat().st_uid, each.stat().st_mode & 0o777) for each in secrets} == {
                (0, 0o600)
            }
            assert not remembers(process, secrets_of(state / AUTHORITY))
            assert remembers(process, secrets_of(state / SERVER)), "what it does have"
            kept.append([each.read_bytes() for each in secrets])
    assert kept[0] == kept[1]


def is_followed(service: int, model: psutil.Process) -> bool:
    """Whether another process is there in the place of this one, which has ended."""
    return not model.is_running() and len(models_of(service)) > 1


def test_it_takes_over_what_root_promotes_and_takes_back_what_ends(tmp_path: Path) -> None:
    """The state is of an earlier version: all of it is root's alone."""
    export(tmp_path / "one")
    export(tmp_path / "two", 2.0)
    for name in ("one", "two"):
        assert manage(tmp_path, "promote", "--model", str(tmp_path / name)).returncode == 0
    old = state_of(tmp_path) / "trial-har.json"
    old.write_text('{"schema": 1, "version": 2, "proven": true, "begun": 0}')
    targets = state_of(tmp_path) / "targets"
    targets.mkdir()
    (targets / "har-1.json").write_text("[]")
    with service(tmp_path, "--shadow-seconds", "0") as running:
        assert not old.exists()
        assert [each.name for each in targets.iterdir()] != ["har-1.json"], "of a killed service"
        assert running.served == 2
        assert manage(tmp_path, "rollback").returncode == 0
        wait_until_served(running, 1)
        assert manage(tmp_path, "promote", "--model", str(tmp_path / "two")).returncode == 0
        wait_until_served(running, 3)
        latest = models_of(running.process.pid)[-1]
        latest.kill()
        eventually(partial(is_followed, running.process.pid, latest), "another process")
        models_of(running.process.pid)[-1].kill()
        wait_until_served(running, 1)
        assert_all_unprivileged(running.process.pid)
        with session(running) as (_, answer):  # by modules that are loaded now alone
            assert "expected a model of the nine channels" in answer["error"]
    assert "1  current" in manage(tmp_path, "list").stdout
    assert list(targets.iterdir()) == []


ATTACKS = """
import os, sys
from core.accounts import SERVICE_ACCOUNT, become
os.chdir(sys.argv[1])
state = os.open("../..", os.O_PATH)
become(SERVICE_ACCOUNT)
attempts = {
    "token": lambda: os.open("token", os.O_RDONLY, dir_fd=state),
    "state": lambda: os.mkdir("new", dir_fd=state),
    "versions": lambda: os.rename("versions", "mine"),
    "lock": lambda: os.unlink("lock"),
    "version": lambda: os.mkdir("versions/9"),
    "model": lambda: os.open("versions/1/model.onnx", os.O_WRONLY),
}
for name, attempt in attempts.items():
    try:
        attempt()
    except PermissionError:
        print(name, end=" ")
os.unlink("current.json")
os.symlink(sys.argv[2], "current.json")
"""


def test_the_account_cannot_lead_root_elsewhere(tmp_path: Path) -> None:
    export(tmp_path / "one")
    export(tmp_path / "two", 2.0)
    with service(tmp_path, "--model", str(tmp_path / "one")):
        pass
    mine = tmp_path / "root's"
    mine.write_text('{"schema": 1, "history": [7]}')
    models = state_of(tmp_path) / "models" / "har"
    refused = python("-c", ATTACKS, str(models), str(mine))
    assert refused == "token state versions lock version model "
    assert "a link, current.json" in manage(tmp_path, "list").stderr
    assert manage(tmp_path, "promote", "--model", str(tmp_path / "two")).returncode != 0
    assert mine.read_text() == '{"schema": 1, "history": [7]}'
    assert mine.stat().st_uid == 0


@pytest.mark.parametrize(
    "name", ["models/har", "models/har/versions", "models/har/lock", "targets"]
)
def test_what_is_not_root_s_is_not_handed_over(tmp_path: Path, name: str) -> None:
    export(tmp_path / "one")
    with service(tmp_path, "--model", str(tmp_path / "one")):
        pass
    place = state_of(tmp_path) / name
    aside = tmp_path / "aside"
    place.rename(aside)
    place.symlink_to(aside)
    for owner in (None, 1234):
        if owner is not None:
            place.unlink()
            aside.rename(place)
            os.chown(place, owner, owner)
        done = subprocess.run(
            command(state_of(tmp_path)),
            env=environment_for_any_folder(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1, done.stderr
        assert len(done.stderr.splitlines()) == 1
        assert done.stdout == ""


def test_root_that_cannot_change_its_account_serves_on_and_says_so(tmp_path: Path) -> None:
    export(tmp_path / "one")
    bound = ("setpriv", "--bounding-set=-setuid,-setgid", "--inh-caps=-setuid,-setgid", "--")
    with subprocess.Popen(
        [*bound, *command(state_of(tmp_path), "--model", str(tmp_path / "one"))],
        env=environment_for_any_folder(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert READY.fullmatch(process.stdout.readline())
        assert said(process.pid, process.pid, "Uid") == ["0"] * 4
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 0
    lines = [line for line in errors.splitlines() if "the service runs as root: " in line]
    assert len(lines) == 1
    assert "grant CAP_SETUID and CAP_SETGID" in lines[0]
    assert (state_of(tmp_path) / "models/har").stat().st_gid == 0
