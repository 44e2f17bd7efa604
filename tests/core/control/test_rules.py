"""Who may call what on a metrics port."""

from itertools import product
from typing import Any

import pytest

from core.control.client import (
    CHALLENGE_HEADER,
    MARK_HEADER,
    NONCE_HEADER,
    PROOF_HEADER,
    key_of,
    proof,
)
from core.control.own_state import COORDINATOR as FIRST
from core.control.own_state import VARIABLE
from core.control.requests import BY_TOKEN, VALID_SECONDS, Challenges, Rules
from tests.core.control.asked import asked
from tests.tables import table

OURS = {"Host": "127.0.0.1:9202", MARK_HEADER: "1"}
COORDINATOR = "192.168.1.26"
OURS_ALONE = Rules(COORDINATOR, ("rpi11",))
TOKEN = "a1" * 32
NONCE = "5e" * 16
ACTIONS = ("/drain/worker:0", "/restart", "/run/x")


def status(
    target: str,
    headers: dict[str, str],
    rules: Rules = OURS_ALONE,
    client: str = "127.0.0.1",
    own: str = "192.168.1.17",
) -> int:
    refusal = rules.refusal(asked("POST", target, headers, client, own))
    if refusal is None:
        return 200
    return refusal.status


@pytest.mark.parametrize("target", ACTIONS)
@pytest.mark.parametrize(("changed", "expected"), table("core/control/tables", "from a browser"))
def test_what_a_browser_could_send_is_refused(
    target: str, changed: dict[str, str], expected: int
) -> None:
    assert status(target, {**OURS, **changed}) == expected


@pytest.mark.parametrize(
    ("target", "row"),
    [
        *(("/drain/worker:0", row) for row in table("core/control/tables", "drain")),
        *product(("/restart", "/run/x"), table("core/control/tables", "others")),
    ],
)
def test_the_address_decides_first(target: str, row: list[Any]) -> None:
    coordinator, client, own, expected = row
    assert status(target, OURS, Rules(coordinator), client, own) == expected


def challenged(rules: Rules, target: str, client: str = "127.0.0.1") -> tuple[str, str]:
    """The challenge that these rules answer with, and the proof of the one who made it."""
    nonce = {NONCE_HEADER: NONCE}
    refusal = rules.refusal(asked("POST", target, {**OURS, **nonce}, client))
    assert refusal is not None
    given = dict(refusal.headers)
    return given.get(CHALLENGE_HEADER, ""), given.get(PROOF_HEADER, "")


def answered(key: str, challenge: str, target: str) -> dict[str, str]:
    made = proof(key, "client", challenge, "POST", target)
    return {**OURS, CHALLENGE_HEADER: challenge, PROOF_HEADER: made}


@pytest.mark.parametrize("target", ACTIONS)
def test_a_challenge_admits_one_request_of_one_who_knows_the_key(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, TOKEN)
    key = key_of(TOKEN, FIRST)
    assert key is not None
    rules = Rules()
    challenge, theirs = challenged(rules, target)
    assert theirs == proof(key, "server", NONCE, challenge), "it proves itself first"
    for wrong in (TOKEN, key_of(TOKEN, "worker:0") or "", "", theirs):
        assert status(target, answered(wrong, challenge, target), rules) == 403
    assert status(target, answered(key, challenge, f"{target}x"), rules) == 403
    assert status(target, answered(key, challenge, target), Rules()) == 403, "another process's"
    assert status(target, answered(key, challenge, target), rules) == 200
    assert status(target, answered(key, challenge, target), rules) == 403, "it was spent"


def test_a_challenge_ends_and_none_is_made_by_a_caller() -> None:
    now = [1000.0]
    challenges = Challenges(lambda: now[0])
    first = challenges.issue()
    assert first != challenges.issue()
    assert challenges.is_open(first)
    for wrong in ("", "-", first[:-1], f"9{first}", "nan-00-00", first.replace("1", "2", 1)):
        assert not challenges.is_open(wrong)
    now[0] += VALID_SECONDS + 1.0
    assert not challenges.is_open(first)


def test_a_spent_challenge_is_kept_no_longer_than_it_could_be_used_again() -> None:
    now = [1000.0]
    challenges = Challenges(lambda: now[0])
    for _ in range(100):
        challenge = challenges.issue()
        challenges.spend(challenge)
        assert not challenges.is_open(challenge)
        now[0] += VALID_SECONDS + 1.0
    assert len(challenges._spent) == 1


@pytest.mark.parametrize("nonce", ["", "x" * 32, "aa", "a" * 65])
def test_without_a_nonce_of_its_own_a_caller_gets_no_proof(nonce: str) -> None:
    rules = Rules(key=lambda: TOKEN)
    refusal = rules.refusal(asked("POST", "/restart", {**OURS, NONCE_HEADER: nonce}))
    assert refusal is not None
    assert (refusal.status, refusal.headers) == (403, ())


@pytest.mark.parametrize("target", ACTIONS)
@pytest.mark.parametrize("key", [TOKEN, None])
def test_in_pods_the_key_alone_decides_and_nobody_else_may_drain(
    target: str, key: str | None
) -> None:
    rules = Rules(BY_TOKEN, key=lambda: key)
    challenge, _ = challenged(rules, target, "10.42.0.9")
    found = status(target, answered(TOKEN, challenge, target), rules, client="10.42.0.9")
    assert (found == 200) == (key is not None and not target.startswith("/drain"))
    assert found in (200, 403)


def test_reading_is_for_all_who_reach_the_port() -> None:
    """A Prometheus in a container knows this machine as `host.docker.internal`."""
    assert Rules().refusal(asked("GET", "/metrics", {"Host": "host.docker.internal:9201"})) is None
    for host, expected in {"evil.example:9201": 421, "10.0.0.1:9201": None}.items():
        browser = {"Host": host, "Accept-Language": ""}
        found = OURS_ALONE.refusal(asked("GET", "/metrics", browser))
        assert getattr(found, "status", None) == expected


@pytest.mark.parametrize("marks", [{}, {MARK_HEADER: "1", MARK_HEADER.lower(): "1"}])
def test_without_the_mark_or_with_two_nothing_is_obeyed(marks: dict[str, str]) -> None:
    assert status("/restart", {"Host": "localhost", **marks}) == 403


@pytest.mark.parametrize("target", ["/", "/metrics", "/restart/now", "/drain", "/runs/x"])
def test_what_the_table_does_not_name_is_refused_to_everyone(target: str) -> None:
    assert status(target, OURS) == 403
