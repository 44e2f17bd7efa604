"""The script that restarts a node's service and waits for it; systemd is played, the port real."""

import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from deploy.cluster.fleet import Fleet, Local
from deploy.converge.deployment import Desired, PlanRunner, plan
from deploy.converge.recap import Recap
from deploy.converge.resources import until_it_listens
from deploy.converge.serving import (
    READY_SECONDS,
    SCRIPT,
    SPARE_SECONDS,
    waits,
    words_of,
)
from deploy.converge.subject import Change, DeploymentDisplay, Shell
from recognise.service.certificates import server_certificate
from recognise.service.state import made
from tests.deploy.answering import answering
from tests.deploy.converge.pi import machines_for, thesis, untouched_cluster
from tests.hang import HANG_SECONDS
from tests.ran import ran

UNIT = "pscluster-service.service"
SYSTEMCTL = """\
#!/bin/sh
case $1 in
    restart) echo "$*" >>{folder}/done; [ ! -e {folder}/broken ] ;;
    show) [ -e {folder}/flapping ] && echo $$ || echo {pid} ;;
esac
"""
JOURNALCTL = "#!/bin/sh\necho no such certificate\n"


@dataclass
class Played:
    """A node's commands in a folder."""

    folder: Path

    def restart(
        self,
        port: int = 1,
        *,
        seconds: float = 5.0,
        certificate: str = "",
        pointer: str = "",
        verb: str = "restart",
    ) -> tuple[int, str, str]:
        """Exit code, output and errors; `pointer` is below the folder."""
        where = (str(port), certificate, str(self.folder / pointer))
        done = subprocess.run(
            [sys.executable, "-", verb, UNIT, "127.0.0.1", *where, f"{seconds:g}", "0.5"],
            input=SCRIPT.decode(),
            capture_output=True,
            text=True,
            check=False,
            timeout=HANG_SECONDS,
            env={"PATH": f"{self.folder}:/usr/bin:/bin"},
        )
        return done.returncode, done.stdout, done.stderr

    @property
    def done(self) -> list[str]:
        if not (self.folder / "done").exists():
            return []
        return (self.folder / "done").read_text().splitlines()


@pytest.fixture
def played(tmp_path: Path) -> Played:
    for name, script in (("systemctl", SYSTEMCTL), ("journalctl", JOURNALCTL)):
        (tmp_path / name).write_text(script.format(folder=tmp_path, pid=os.getpid()))
        (tmp_path / name).chmod(0o755)
    return Played(tmp_path)


def test_a_service_that_answers_is_ready(played: Played) -> None:
    """One that systemd has started is waited for alone."""
    with answering(200) as server:
        assert played.restart(server.server_port, verb="wait") == (0, "ready\n", "")
        assert played.done == []
        assert played.restart(server.server_port) == (0, "ready\n", "")
    assert {path for path, _ in server.asked} == {"/v2/health/ready"}
    assert played.done == [f"restart {UNIT}"]


def test_one_without_a_promoted_version_waits(played: Played) -> None:
    assert played.restart(pointer="current.json") == (0, "waiting\n", "")


def test_one_that_has_a_version_and_does_not_answer_fails_with_its_last_words(
    played: Played,
) -> None:
    with answering(503) as server:
        code, output, errors = played.restart(server.server_port, seconds=1.0)
    assert (code, output) == (1, "")
    late = f"no answer at http://127.0.0.1:{server.server_port}/v2/health/ready within 1 s"
    assert errors.splitlines() == ["no such certificate", late]


@pytest.mark.parametrize("shown", ["its own", "another's", "none"])
def test_one_is_ready_with_the_node_s_own_certificate_alone(
    played: Played, tmp_path: Path, shown: str
) -> None:
    own, other = (server_certificate(made(tmp_path / name), ("node",)) for name in ("a", "b"))
    with answering(200, certificate={"its own": own, "another's": other}.get(shown)) as server:
        code, output, _ = played.restart(server.server_port, seconds=1.0, certificate=str(own))
    assert (code, output) == ((0, "ready\n") if shown == "its own" else (1, ""))


def test_another_process_that_has_taken_the_port_is_not_the_service(
    played: Played, tmp_path: Path
) -> None:
    """It shows what the service would: the node's certificate, and a name like ss's own text."""
    (played.folder / "flapping").touch()  # the unit's process is systemctl itself
    own = server_certificate(made(tmp_path / "own"), ("node",))
    with answering(200, certificate=own) as server:
        port = server.server_port
        code, output, _ = played.restart(port, seconds=1.0, certificate=str(own))
        assert (code, output) == (1, "")
        words = shlex.split(until_it_listens(UNIT, port).replace("range(50)", "range(3)"))
        environment = {"PATH": f"{played.folder}:/usr/bin:/bin"}
        ran(*words, code=1, environment=environment)
        (played.folder / "flapping").unlink()
        ran(*words, environment=environment)


def test_one_that_ends_again_and_again_fails_before_the_deadline(played: Played) -> None:
    (played.folder / "flapping").touch()
    ended = played.restart(seconds=50.0, pointer="current.json")
    assert ended == (1, "", "no such certificate\nit ends again and again\n")


def test_one_that_systemd_does_not_start_fails_at_once(played: Played) -> None:
    (played.folder / "broken").touch()
    assert played.restart() == (1, "", "no such certificate\nsystemd does not start it\n")
    assert played.done == [f"restart {UNIT}"]


def test_the_script_is_told_where_the_node_s_service_answers() -> None:
    def words(verb: Any, *settings: str) -> list[str]:
        given = (f"service.{setting}" for setting in settings)
        return words_of(verb, thesis(*given, rpi02="service"), "rpi02", 90.0)

    models = "/var/lib/pscluster/service/models"
    own = "/etc/pscluster/service/server.pem"
    where = ["192.168.1.17", "8470", own, f"{models}/har/current.json"]
    assert words("wait") == ["wait", UNIT, *where, "90", "5"]
    assert words("restart", "tls=false", "model=steps")[4:6] == [
        *("", f"{models}/steps/current.json")
    ]
    given = ("certificate=/etc/har/chain.pem", "key=/etc/har/key.pem")
    assert words("restart", *given)[4] == "/etc/har/chain.pem"


def test_a_start_waits_for_the_service_that_it_starts() -> None:
    inventory = thesis(rpi02="service")
    plans = plan(machines_for(inventory), untouched_cluster(inventory))
    (step,) = plans["service"]["rpi02"][-1].steps
    assert isinstance(step, Shell)
    assert step.script.endswith(waits(inventory, "rpi02"))
    assert step.deadline_seconds > READY_SECONDS + SPARE_SECONDS


def test_services_are_started_in_turn_and_a_failure_leaves_the_others(tmp_path: Path) -> None:
    """Each node writes its name; the second one fails."""
    names = ("one", "two", "three")

    def change(name: str) -> tuple[Change, ...]:
        script = f"echo {name} >>{tmp_path}/done; [ {name} != two ]"
        return (Change("unit", name, "restart", "for a test", (Shell("restart it", script),)),)

    recap = Recap("start", "three", names)
    fleet = Fleet([Local(name) for name in names], parallel=4)
    runner = PlanRunner(fleet, cast(Desired, None), recap, DeploymentDisplay())
    runner.carry_out({"service": {name: change(name) for name in names}}, ("service",))
    assert (tmp_path / "done").read_text().splitlines() == ["one", "two"]
    assert sorted(recap.failures) == ["three", "two"]
    waits = "three: wait for its turn: two is not ready"
    remedy = "`fab deploy start --retry` takes these nodes again"
    assert recap.failures["three"].line == f"{waits}; {remedy}"
