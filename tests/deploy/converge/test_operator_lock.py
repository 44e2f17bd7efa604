"""Two operators at once: one changes the nodes, and the other is told who that is."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from core.ground.errors import ClusterError
from deploy.cluster.fleet import Fleet, Local
from deploy.converge import coordinator
from deploy.converge.coordinator import only_operator

HUB: Any = SimpleNamespace(
    inventory=SimpleNamespace(of_role=lambda _: [SimpleNamespace(node="pi-1")]),
    fleet=lambda: Fleet([Local("pi-1")], 1),
)


def test_the_second_operator_is_told_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    systemctl = tmp_path / "systemctl"
    systemctl.write_text(
        "#!/bin/sh\nfor id in 1-train-1 1-task-1; do echo pscluster-job@$id.service; done\n"
    )
    systemctl.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(coordinator, "WAIT_SECONDS", 0)
    monkeypatch.setattr(coordinator, "OPERATOR_LOCK", str(tmp_path / "operator"))
    with only_operator(HUB, "start") as jobs:
        assert jobs == ["1-train-1"]
        with (
            pytest.raises(
                ClusterError, match=r"pi-1: another .* \(.*@.*: `fab deploy start` since 20"
            ),
            only_operator(HUB, "stop"),
        ):
            pass


def test_a_node_without_the_lock_delays_nothing_and_that_is_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(coordinator, "OPERATOR_LOCK", str(tmp_path / "nowhere" / "operator"))
    with only_operator(HUB, "start") as jobs:
        assert jobs == []
    line = "pi-1: the lock of operators is not there (its process ended with"
    assert line in capsys.readouterr().err
