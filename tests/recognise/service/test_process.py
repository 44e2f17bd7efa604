"""The service as a process: what it imports and holds, its token, its port, its end."""

import logging
import shlex
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from core.control.own_state import state_of_services
from core.ground.errors import UsageError
from deploy.common.project import ROOT, environment_for_any_folder
from recognise.service import __main__ as main_module
from recognise.service.certificates import AUTHORITY, PUBLIC, SERVER
from recognise.service.state import token_in
from tests.deploy.playing import eventually, gone
from tests.habits import needs
from tests.ran import python
from tests.recognise.service.exports import export, windows
from tests.recognise.service.running import (
    PATH,
    Service,
    as_json,
    called,
    command,
    manage,
    models_of,
    served,
    service,
    state_of,
)
from tests.tables import table

AT_REST_BYTES = 150 << 20
"""What the documentation promises of the service and its model together."""


def refused(folder: Path, *words: str) -> tuple[int, str]:
    """The exit code and the words of a service in `folder` that must not begin."""
    done = subprocess.run(
        command(state_of(folder), *words),
        env=environment_for_any_folder(),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == ""
    return done.returncode, done.stderr


def test_at_rest_it_is_small_and_has_no_tensorflow(tmp_path: Path) -> None:
    needs.root("the maps of a model's process, which hides them")
    with served(tmp_path) as running:
        with running.client() as client:
            assert client.post(f"{PATH}/infer", json=as_json(windows(1))).status_code == 200
        (worker,) = models_of(running.process.pid)
        maps = [
            Path(f"/proc/{each}/maps").read_text() for each in (running.process.pid, worker.pid)
        ]
        assert ["onnxruntime" in each for each in maps] == [False, True]
        assert not any("tensorflow" in each for each in maps)
        main = psutil.Process(running.process.pid)
        every = (main, *main.children(recursive=True))
        assert sum(each.memory_full_info().pss for each in every) < AT_REST_BYTES


def kept(running: Service) -> dict[str, bytes]:
    """The token and the certificates, which are made once."""
    names = ("token", AUTHORITY, PUBLIC, SERVER)
    return {name: (running.folder / name).read_bytes() for name in names}


def test_the_token_and_the_certificates_are_made_once_for_their_owner_alone(
    tmp_path: Path,
) -> None:
    state = state_of(tmp_path)
    with served(tmp_path, "--tls") as first:
        made = kept(first)
    modes = [(state / name).stat().st_mode & 0o777 for name in ("token", ".")]
    assert modes == [0o600, 0o700]
    with service(tmp_path, "--tls") as second:
        assert kept(second) == made


@pytest.mark.parametrize("flag", ["--port", "--metrics-port"])
def test_a_taken_port_is_one_line(tmp_path: Path, flag: str) -> None:
    export(tmp_path / "export")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        found = refused(tmp_path, "--model", str(tmp_path / "export"), flag, port)
    words = f"(Address already in use): end what listens there, or choose another with {flag}"
    assert found == (1, f"port {port} of 127.0.0.1 cannot be opened {words}\n")


def test_a_service_without_a_version_is_one_line(tmp_path: Path) -> None:
    words = "no version of this model was promoted yet: add --model EXPORT or --run RUN\n"
    assert refused(tmp_path) == (1, words)


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The service's main function changes nothing of the process that runs the tests."""
    for name in ("begin", "raise_limit", "give_back_large_blocks"):
        monkeypatch.setattr(main_module, name, lambda *settings: None)
    monkeypatch.setattr(signal, "signal", lambda *settings: None)
    logger = logging.getLogger("recognise")
    level = logger.level
    yield
    logger.setLevel(level)


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize(("words", "line"), table("recognise/service/unserved", "refused").items())
def test_what_cannot_be_served_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = called(main_module.main, *command(state_of(tmp_path), *shlex.split(words))[3:])
    assert f"{done.returncode} {done.stderr}" == f"{line}\n"
    assert done.stdout == ""


def test_a_package_that_it_lacks_is_one_line(tmp_path: Path) -> None:
    words = command(state_of(tmp_path))[3:]
    without = (
        "import sys; sys.modules['uvicorn'] = None; from recognise.service.__main__ import main;"
        f" sys.exit(main({words!r}))"
    )
    said = python("-c", without, code=2)
    assert said == "expected the package uvicorn: pip install uvicorn\n"


@contextmanager
def waiting(folder: Path, *words: str) -> Iterator["subprocess.Popen[str]"]:
    """A service that waits for its first version; SIGTERM ends it."""
    with subprocess.Popen(
        command(state_of(folder), "--wait", *words),
        env=environment_for_any_folder(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            assert "waiting for the first one" in process.stderr.readline()
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def test_it_waits_for_the_first_promotion_and_shows_metrics_without_a_token(tmp_path: Path) -> None:
    export(tmp_path / "export")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with waiting(tmp_path, "--metrics-port", str(port)) as process:
        assert manage(tmp_path, "promote", "--model", str(tmp_path / "export")).returncode == 0
        assert process.stdout is not None
        assert process.stdout.readline().startswith("serving har version 1 at http://127.0.0.1:")
        text = httpx.get(f"http://127.0.0.1:{port}/metrics").text
        assert 'pscluster_service_model_version{role="service",task="0"} 1.0' in text
        assert httpx.get(f"http://127.0.0.1:{port}/v2").status_code == 404
        eventually(
            lambda: httpx.get(f"http://127.0.0.1:{port}/ready").status_code == 200, "its probe"
        )


def test_one_that_waits_ends_when_it_is_told_to(tmp_path: Path) -> None:
    with waiting(tmp_path):
        pass


def test_a_token_of_one_s_own_and_versions_elsewhere(tmp_path: Path) -> None:
    """A pod's token is a mounted Secret, which is a link; several pods read one folder."""
    (tmp_path / "secret").write_text("s3cret-of-the-house\n")
    (tmp_path / "token").symlink_to(tmp_path / "secret")
    elsewhere = ("--versions", str(tmp_path / "models"))
    words = ("--token-file", str(tmp_path / "token"), "--host-name", "har.lan")
    with served(tmp_path, *elsewhere, *words) as running, running.client() as client:
        assert client.get("/v2").status_code == 401
        client.headers["Authorization"] = "Bearer s3cret-of-the-house"
        for host, status in ((running.address, 200), ("har.lan:8470", 200), ("har.example", 421)):
            assert client.get("/v2", headers={"Host": host}).status_code == status
        # No token of its own, and nothing for a Prometheus beside it.
        files = [path.name for path in running.folder.rglob("*") if path.is_file()]
        assert files == []
    assert [path.name for path in (tmp_path / "models/har/versions").iterdir()] == ["1"]
    assert "current" in manage(tmp_path, "list", *elsewhere).stdout
    assert manage(tmp_path, "list").stdout.startswith("no version yet")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"short\n", "a token of 16 to 512 visible ASCII characters, got another text of 5"),
        (b"two words of a token", "expected a token of 16 to 512 visible ASCII characters"),
        (b"\xff" * 20, "the token cannot be read"),
        (b"x" * 600, "got another text of 600"),
    ],
)
def test_what_is_no_token_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "token").write_bytes(content)
    with pytest.raises(UsageError, match=said) as caught:
        token_in(tmp_path / "token")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_fab_serve_ends_its_service_however_it_ends(tmp_path: Path, number: signal.Signals) -> None:
    export(tmp_path / "export")
    fab = (str(ROOT / ".venv/bin/fab"), "-r", str(ROOT))
    with subprocess.Popen(
        [*fab, "serve", "--model", "export", "--port", "0"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as command:
        assert command.stdout is not None
        line = command.stdout.readline()
        assert line.startswith("serving har version 1 at http://127.0.0.1:"), command.communicate()
        assert f"(token: {state_of_services(tmp_path)}/token; Ctrl-C ends it)" in line
        children = Path(f"/proc/{command.pid}/task/{command.pid}/children").read_text()
        command.send_signal(number)
        # The service has the same pipes, so it has ended too.
        _, errors = command.communicate(timeout=60)
        assert command.returncode == (130 if number != signal.SIGKILL else -9), errors
    # The kernel closes a process' pipes first, then it counts as ended.
    eventually(lambda: gone(int(children)), "the service to end")
