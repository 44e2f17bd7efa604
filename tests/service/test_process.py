"""The service as a process: what it imports and holds, its token, its port, its end."""

import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from deploy.common.project import environment_for_any_folder
from recognise.service.limits import MEBIBYTE
from recognise.service.versions import Versions
from tests.deploy.playing import eventually
from tests.service.exports import export, windows
from tests.service.raw import exchange, post
from tests.service.running import PATH, as_json, command, manage, service, state_of

AT_REST_KB = 120_000
"""What the documentation promises, VmRSS."""


def ended(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """A service that must end by itself."""
    return subprocess.run(
        command(state_of(folder), *words), env=environment_for_any_folder(), capture_output=True, text=True,
        check=False, timeout=60,
    )  # fmt: skip


def test_at_rest_it_is_small_and_has_no_tensorflow(tmp_path: Path) -> None:
    export(tmp_path / "export")
    with service(tmp_path, "--model", str(tmp_path / "export")) as running:
        with running.client() as client:
            assert client.post(f"{PATH}/infer", json=as_json(windows(1))).status_code == 200
        maps = Path(f"/proc/{running.process.pid}/maps").read_text()
        assert "onnxruntime" in maps
        assert "tensorflow" not in maps
        assert running.status("VmRSS") < AT_REST_KB


@pytest.mark.long
def test_its_memory_stays_flat_over_large_refused_requests(tmp_path: Path) -> None:
    export(tmp_path / "export")
    large = [
        b"[" * (8 * MEBIBYTE),
        b'{"inputs":["' + b"x" * (8 * MEBIBYTE) + b'"]}',
        b"[" + b"{}," * 2 * MEBIBYTE + b"1]",
    ]  # fmt: skip
    with service(tmp_path, "--model", str(tmp_path / "export")) as running:
        figures = []
        for _ in range(6):
            for body in large:
                answer = exchange(running.port, post(f"{PATH}/infer", running.token, body))
                assert answer is not None
                assert answer.status == 400
            figures.append(running.status("VmRSS"))
        assert figures[-1] <= figures[1] + 8 * 1024, figures  # less than one body more


def test_the_token_is_made_once_for_its_owner_alone_and_stays(tmp_path: Path) -> None:
    export(tmp_path / "export")
    state = state_of(tmp_path)
    with service(tmp_path, "--model", str(tmp_path / "export")) as first:
        token = first.token
    assert ((state / "token").stat().st_mode & 0o777, state.stat().st_mode & 0o777) == (0o600, 0o700)
    assert (state.parent / ".gitignore").read_text().endswith("*\n")
    with service(tmp_path) as second, second.client() as client:
        assert second.token == token
        assert client.get("/v2").status_code == 200


def test_without_a_token_on_loopback_alone(tmp_path: Path) -> None:
    export(tmp_path / "export")
    with service(tmp_path, "--model", str(tmp_path / "export"), "--no-token") as running:
        assert not (running.folder / "token").exists()
        with running.client() as client:
            assert client.post(f"{PATH}/infer", json=as_json(windows(1))).status_code == 200
    refused = ended(tmp_path, "--no-token", "--listen", "0.0.0.0")
    assert (refused.returncode, refused.stderr) == (
        2,
        "--no-token: expected it with 127.0.0.1 alone, got --listen 0.0.0.0\n",
    )


def test_a_taken_port_is_one_line(tmp_path: Path) -> None:
    export(tmp_path / "export")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = ended(tmp_path, "--model", str(tmp_path / "export"), "--port", str(port))
    assert refused.returncode == 1
    words = "(Address already in use): end what listens there, or choose another with --port"
    assert refused.stderr == f"port {port} of 127.0.0.1 cannot be opened {words}\n"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ((), "no version of this model was promoted yet: add --model EXPORT or --run RUN"),
        (("--model", "nowhere"), "nowhere: expected a folder that `fab export` wrote"),
        (("--listen", "example.org"), "--listen: expected an address of this machine, got 'example.org'"),
        (("--threads", "0"), "--threads: expected 1 to 64, got 0"),
    ],
)
def test_what_cannot_be_served_is_one_line(tmp_path: Path, words: tuple[str, ...], line: str) -> None:
    refused = ended(tmp_path, *words)
    assert refused.returncode in (1, 2)
    assert refused.stderr == f"{line}\n"


def test_a_package_that_it_lacks_is_one_line(tmp_path: Path) -> None:
    words = command(state_of(tmp_path))[3:]
    without = f"import sys; sys.modules['uvicorn'] = None; from recognise.service.__main__ import main; main({words!r})"
    refused = subprocess.run(
        [sys.executable, "-c", without], env=environment_for_any_folder(), capture_output=True, text=True, check=False,
        timeout=60,
    )  # fmt: skip
    assert refused.stderr == "expected the package uvicorn: pip install uvicorn\n"


def test_it_waits_for_the_first_promotion_and_shows_metrics_without_a_token(tmp_path: Path) -> None:
    export(tmp_path / "export")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = command(state_of(tmp_path), "--wait", "--metrics-port", str(port))
    with subprocess.Popen(words, env=environment_for_any_folder(), stdout=subprocess.PIPE, text=True) as waiting:
        try:
            eventually(lambda: (state_of(tmp_path)).is_dir(), "the folder of the state")
            assert waiting.poll() is None
            Versions(state_of(tmp_path) / "models" / "har").promote(tmp_path / "export")
            assert waiting.stdout is not None
            assert waiting.stdout.readline().startswith("serving har version 1 at http://127.0.0.1:")
            text = httpx.get(f"http://127.0.0.1:{port}/metrics").text
            assert 'pscluster_service_model_version{role="service",task="0"} 1.0' in text
            assert httpx.get(f"http://127.0.0.1:{port}/v2").status_code == 404
        finally:
            waiting.send_signal(signal.SIGTERM)
        assert waiting.wait(30) == 0


def test_one_that_waits_ends_when_it_is_told_to(tmp_path: Path) -> None:
    words = command(state_of(tmp_path), "--wait")
    with subprocess.Popen(words, env=environment_for_any_folder(), stderr=subprocess.PIPE, text=True) as waiting:
        assert waiting.stderr is not None
        assert "waiting for the first one" in waiting.stderr.readline()
        waiting.send_signal(signal.SIGTERM)
        assert waiting.wait(30) == 0


def test_a_taken_metrics_port_is_one_line(tmp_path: Path) -> None:
    export(tmp_path / "export")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = ended(tmp_path, "--model", str(tmp_path / "export"), "--metrics-port", port)
    words = "(Address already in use): end what listens there, or choose another with --metrics-port"
    assert (refused.returncode, refused.stderr) == (1, f"port {port} of 127.0.0.1 cannot be opened {words}\n")


def test_a_token_of_one_s_own_and_versions_elsewhere(tmp_path: Path) -> None:
    """As a pod has them: the token is a mounted Secret, which is a link, and several pods read one folder."""
    export(tmp_path / "export")
    (tmp_path / "secret").write_text("s3cret-of-the-house\n")
    (tmp_path / "token").symlink_to(tmp_path / "secret")
    words = ("--versions", str(tmp_path / "models"), "--token-file", str(tmp_path / "token"), "--host-name", "har.lan")
    with service(tmp_path, "--model", str(tmp_path / "export"), *words) as running:
        headers = {"Authorization": "Bearer s3cret-of-the-house"}
        with running.client() as client:
            assert client.get("/v2").status_code == 401
            assert client.get("/v2", headers=headers).status_code == 200
            assert client.get("/v2", headers={**headers, "Host": "har.lan:8470"}).status_code == 200
            assert client.get("/v2", headers={**headers, "Host": "har.example.org"}).status_code == 421
        assert list(running.folder.iterdir()) == []  # no token of its own, and nothing for a Prometheus beside it
    assert [path.name for path in (tmp_path / "models/har/versions").iterdir()] == ["1"]
    listed = manage(tmp_path, "list", "--versions", str(tmp_path / "models"))
    assert "current" in listed.stdout
    assert manage(tmp_path, "list").stdout.startswith("no version yet")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "the token cannot be read (No such file or directory): check --token-file"),
        (b"short\n", "expected a token of 16 to 512 visible ASCII characters, got another text of 5"),
        (b"two words of a token", "expected a token of 16 to 512 visible ASCII characters"),
        (b"\xff" * 20, "the token cannot be read"),
        (b"x" * 600, "expected a token of 16 to 512 visible ASCII characters, got another text of 600"),
    ],
)
def test_what_is_no_token_is_one_line(tmp_path: Path, content: bytes | None, said: str) -> None:
    if content is not None:
        (tmp_path / "token").write_bytes(content)
    refused = ended(tmp_path, "--token-file", str(tmp_path / "token"))
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert said in refused.stderr


@pytest.mark.parametrize("name", ["a b", "a..b", "har.example.org:8470", ""])
def test_a_wrong_host_name_is_one_line(tmp_path: Path, name: str) -> None:
    refused = ended(tmp_path, "--host-name", name)
    assert (refused.returncode, refused.stderr) == (2, f"--host-name: expected the name of a host, got {name!r}\n")


def test_sigterm_ends_it_like_ctrl_c(tmp_path: Path) -> None:
    export(tmp_path / "export")
    with service(tmp_path, "--model", str(tmp_path / "export")) as running:
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(30) == 0


def fab(*words: str) -> list[str]:
    from deploy.common.project import ROOT

    return [str(ROOT / ".venv/bin/fab"), "-r", str(ROOT), *words]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_fab_serve_ends_its_service_however_it_ends(tmp_path: Path, number: signal.Signals) -> None:
    export(tmp_path / "export")
    words = fab("serve", "--model", "export", "--port", "0")
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as command:
        assert command.stdout is not None
        line = command.stdout.readline()
        assert line.startswith("serving har version 1 at http://127.0.0.1:"), command.communicate()
        assert "(token: .pscluster/_service/token; Ctrl-C ends it)" in line
        children = Path(f"/proc/{command.pid}/task/{command.pid}/children").read_text().split()
        assert len(children) == 1
        command.send_signal(number)
        _, errors = command.communicate(timeout=60)  # the service has the same pipes, so it has ended too
        assert command.returncode == (130 if number != signal.SIGKILL else -signal.SIGKILL), errors
    # The kernel ends the service when its command ends: it closes the pipes first, then counts as ended.
    eventually(lambda: not is_running(int(children[0])), "the service to end")


def is_running(pid: int) -> bool:
    """Whether the process computes; the exit code of an orphan may still wait for init."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
