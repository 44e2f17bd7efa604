"""The token of a local cluster: one file, made once, for its account alone."""

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cluster.control.client import ask
from cluster.control.rules import Rules
from cluster.control.token import NAME, VARIABLE, adopt, kept_token, read_token
from tests.control.asked import asked
from tests.control.test_rules import ACTIONS, OURS
from tests.server.processes import HANG_SECONDS, running

TOKEN = "a1" * 32


def test_it_is_made_once_and_readable_by_its_account_alone(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = set(pool.map(lambda _: kept_token(tmp_path), range(50)))
    assert made == {read_token(tmp_path)}
    assert stat.S_IMODE((tmp_path / NAME).stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


@pytest.mark.parametrize("content", ["", "short\n", "g" * 64, "a1" * 33])
def test_a_file_that_holds_none_is_replaced(tmp_path: Path, content: str) -> None:
    (tmp_path / NAME).write_text(content)
    assert read_token(tmp_path) is None
    assert kept_token(tmp_path) == read_token(tmp_path)


def test_a_coordinator_that_was_started_by_hand_finds_it(tmp_path: Path) -> None:
    environment: dict[str, str] = {}
    adopt(tmp_path / "inventory.yaml", "mine", environment)
    assert environment == {}
    folder = tmp_path / ".pscluster/mine"
    folder.mkdir(parents=True)
    token = kept_token(folder)
    adopt(tmp_path / "inventory.yaml", "mine", environment)
    assert environment == {VARIABLE: token}
    environment[VARIABLE] = "given"
    adopt(tmp_path / "inventory.yaml", "mine", environment)
    assert environment == {VARIABLE: "given"}


@pytest.mark.parametrize("target", ACTIONS)
def test_a_process_with_a_token_obeys_who_knows_it(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, TOKEN)
    without = asked("POST", target, OURS)
    wrong = asked("POST", target, {**OURS, "X-PSCluster-Token": "b2" * 32})
    right = asked("POST", target, {**OURS, "X-PSCluster-Token": TOKEN})
    refusals = [Rules().refusal(request) for request in (without, wrong, right)]
    assert [None if refusal is None else refusal[0] for refusal in refusals] == [403, 403, None]


def test_a_role_with_a_token_is_restarted_by_who_knows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, TOKEN)
    with running("worker_node", "--coordinator", "192.0.2.1") as role:
        address = f"127.0.0.1:{role.metrics_port}"
        for path in ("/restart", "/run/x"):
            assert ask(address, "POST", path, deadline_seconds=HANG_SECONDS).status == 403
        assert ask(address, "GET", "/metrics", deadline_seconds=HANG_SECONDS).status == 200
        assert ask(address, "POST", "/run/x", deadline_seconds=HANG_SECONDS, token=TOKEN).status == 200
        assert ask(address, "POST", "/restart", deadline_seconds=HANG_SECONDS, token=TOKEN).status == 202
        assert "restart asked for by 127.0.0.1" in role.output()
