"""The script that restarts a node's service and waits for it, with a played systemd and a real port."""

import http.server
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from cluster.errors import ClusterError
from deploy.cluster.fleet import Fleet
from deploy.cluster.local import Local
from deploy.converge.change import Change, DeploymentDisplay, Shell
from deploy.converge.deployment import Desired, PlanRunner, plan
from deploy.converge.recap import Recap
from deploy.converge.serving import READY_SECONDS, SCRIPT, SPARE_SECONDS, restart_service, waits, words_of
from tests.deploy.converge.pi import untouched_cluster, wish_for
from tests.deploy.converge.test_service_role import serving

UNIT = "pscluster-service.service"
SYSTEMCTL = """\
#!/bin/sh
echo "$*" >>{folder}/done
case $1 in
    restart) [ ! -e {folder}/broken ] ;;
    show) [ -e {folder}/flapping ] && echo $$ || echo 4711 ;;
esac
"""


@dataclass
class Played:
    """A node's commands in a folder."""

    folder: Path

    def restart(
        self, port: int, seconds: float = 5.0, scheme: str = "http", pointer: str = "", verb: str = "restart"
    ) -> "subprocess.CompletedProcess[str]":
        words = verb, UNIT, "127.0.0.1", str(port), scheme, pointer or str(self.folder), f"{seconds:g}", "0.5"
        return subprocess.run(
            [sys.executable, "-", *words], input=SCRIPT.decode(), capture_output=True, text=True, check=False,
            timeout=60, env={"PATH": f"{self.folder}:/usr/bin:/bin"},
        )  # fmt: skip

    @property
    def done(self) -> list[str]:
        return (self.folder / "done").read_text().splitlines()


@pytest.fixture
def played(tmp_path: Path) -> Played:
    for name, script in (("systemctl", SYSTEMCTL), ("journalctl", "#!/bin/sh\necho no such certificate\n")):
        (tmp_path / name).write_text(script.format(folder=tmp_path))
        (tmp_path / name).chmod(0o755)
    return Played(tmp_path)


@contextmanager
def answering(status: int = 200) -> Iterator[int]:
    """A port where something answers so."""

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/v2/health/ready" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_service_that_answers_is_ready(played: Played) -> None:
    with answering() as port:
        done = played.restart(port)
    assert (done.returncode, done.stdout) == (0, "ready\n"), done.stderr
    assert played.done == [f"restart {UNIT}"]


def test_one_that_systemd_has_started_is_waited_for_alone(played: Played) -> None:
    with answering() as port:
        assert played.restart(port, verb="wait").stdout == "ready\n"
    assert not (played.folder / "done").exists()


def test_one_without_a_promoted_version_waits(played: Played) -> None:
    done = played.restart(1, pointer=str(played.folder / "current.json"))
    assert (done.returncode, done.stdout) == (0, "waiting\n"), done.stderr


def test_one_that_has_a_version_and_does_not_answer_fails_with_its_last_words(played: Played) -> None:
    with answering(503) as port:
        done = played.restart(port, seconds=1.0)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"no such certificate\nno answer at http://127.0.0.1:{port}/v2/health/ready within 1 s\n"
    )  # fmt: skip


def test_one_that_speaks_no_tls_is_not_ready_with_it(played: Played) -> None:
    with answering() as port:
        done = played.restart(port, seconds=1.0, scheme="https")
    assert (done.returncode, f"no answer at https://127.0.0.1:{port}" in done.stderr) == (1, True), done.stderr


def test_one_that_ends_again_and_again_fails_before_the_deadline(played: Played) -> None:
    (played.folder / "flapping").touch()
    done = played.restart(1, seconds=50.0, pointer=str(played.folder / "current.json"))
    assert (done.returncode, done.stderr) == (1, "no such certificate\nit ends again and again\n")


def test_one_that_systemd_does_not_start_fails_at_once(played: Played) -> None:
    (played.folder / "broken").touch()
    done = played.restart(1)
    assert (done.returncode, done.stderr) == (1, "no such certificate\nsystemd does not start it\n")
    assert played.done == [f"restart {UNIT}"]


def test_the_script_is_told_where_the_node_s_service_answers(tmp_path: Path) -> None:
    assert words_of("wait", serving(tmp_path), "rpi02", 90.0) == [
        "wait", UNIT, "192.168.1.17", "8470", "https", "/var/lib/pscluster/service/models/har/current.json", "90", "5",
    ]  # fmt: skip
    plain = words_of("restart", serving(tmp_path, "service.tls=false", "service.model=steps"), "rpi02")
    assert plain[4:6] == ["http", "/var/lib/pscluster/service/models/steps/current.json"]
    own = serving(tmp_path, "service.certificate=/etc/har/chain.pem", "service.key=/etc/har/key.pem")
    assert words_of("restart", own, "rpi02")[4] == "https"


def test_a_start_waits_for_the_service_that_it_starts(tmp_path: Path) -> None:
    inventory = serving(tmp_path)
    plans = plan(wish_for(inventory), untouched_cluster(inventory))
    (step,) = plans["service"]["rpi02"][-1].steps
    assert isinstance(step, Shell)
    assert step.script.endswith(waits(inventory, "rpi02"))
    syntax = subprocess.run(["sh", "-n"], input=step.script, capture_output=True, text=True, check=False)
    assert (syntax.returncode, syntax.stderr) == (0, "")
    assert step.deadline_seconds > READY_SECONDS + SPARE_SECONDS


def test_services_are_started_in_turn_and_a_failure_leaves_the_others(tmp_path: Path) -> None:
    """Each node writes its name; the second one fails."""
    names = ("one", "two", "three")
    fleet = Fleet([Local(name) for name in names], parallel=4)

    def change(name: str, phase: str) -> tuple[Change, ...]:
        script = f"echo {phase} {name} >>{tmp_path}/done; [ {name} != two ]"
        return (Change("unit", name, "restart", "for a test", (Shell("restart it", script),)),)

    runner = PlanRunner(fleet, cast(Desired, None), Recap("start", "three", names), DeploymentDisplay())
    runner.carry_out({"service": {name: change(name, "service") for name in names}}, ("service",))
    assert (tmp_path / "done").read_text().splitlines() == ["service one", "service two"]
    assert sorted(runner.recap.failures) == ["three", "two"]
    assert runner.recap.failures["three"].line == (
        "three: wait for its turn: two is not ready; `fab deploy start --retry` takes these nodes again"
    )


def test_a_failure_is_one_line_with_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Done:
        ok = False
        last_lines = ("no such certificate", "it ends again and again")

    monkeypatch.setattr(Local, "run", lambda *_, **__: Done())
    with pytest.raises(ClusterError) as failed:
        restart_service(serving(tmp_path), Local("rpi02"))
    assert str(failed.value) == (
        "rpi02: service not ready: no such certificate | it ends again and again; `fab deploy logs --node rpi02` says "
        "more, `fab deploy ssh --node rpi02` looks at it by hand"
    )
