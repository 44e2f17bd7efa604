"""Whether the coordinator's node reaches the roles: asked there, with that node's own Python."""

import socket
from pathlib import Path

import pytest

from deploy.converge import quorum
from deploy.converge.quorum import unreachable
from tests.deploy.over_ssh.nodes import fleet_of, trusting
from tests.deploy.over_ssh.sshd import GREETING, Sshd, running_sshd
from tests.inventory.cases import machine, read

TEXT = """\
schema: 1
cluster: one
connection: ssh
storage: {{server: pi-1}}
nodes:
  - name: pi-1
    address: 127.0.0.1
    roles: [storage, coordinator, {{ps: {{port: {ps}}}}}, {{worker: {{port: {worker}}}}}]
"""


def test_a_role_that_nobody_answers_for_is_a_failure_of_its_node(sshd: Sshd, tmp_path: Path) -> None:
    with socket.socket() as answering, socket.socket() as silent:
        for one in (answering, silent):
            one.bind(("127.0.0.1", 0))
        answering.listen()
        inventory = read(TEXT.format(ps=answering.getsockname()[1], worker=silent.getsockname()[1]), on=machine())
        with fleet_of(trusting(tmp_path, sshd), [("pi-1", sshd)]) as fleet:
            (failure,) = unreachable(inventory, fleet, ["pi-1"])
            assert unreachable(inventory, fleet, []) == []
    assert (failure.node, failure.phase, failure.step) == ("pi-1", "verify", "reach the roles")
    assert "pi-1 does not reach worker:0 at 127.0.0.1:" in failure.line
    assert "Connection refused" in failure.line


def test_what_a_start_file_prints_is_no_role(tmp_path: Path) -> None:
    with socket.socket() as answering, socket.socket() as silent:
        for one in (answering, silent):
            one.bind(("127.0.0.1", 0))
        answering.listen()
        inventory = read(TEXT.format(ps=answering.getsockname()[1], worker=silent.getsockname()[1]), on=machine())
        with (
            running_sshd(tmp_path, GREETING) as sshd,
            fleet_of(trusting(tmp_path, sshd), [("pi-1", sshd)]) as fleet,
        ):
            (failure,) = unreachable(inventory, fleet, ["pi-1"])
    assert "pi-1 does not reach worker:0" in failure.line


def test_a_probe_that_dies_has_reached_nobody(sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quorum, "_PROBE", "raise SystemExit('there is no thread left')")
    inventory = read(TEXT.format(ps=2222, worker=2223), on=machine())
    with fleet_of(trusting(tmp_path, sshd), [("pi-1", sshd)]) as fleet:
        (failure,) = unreachable(inventory, fleet, ["pi-1"])
    assert failure.line == (
        "pi-1: reach the roles (exit code 1): there is no thread left; `fab deploy ssh --node pi-1` looks at it by hand"
    )
