"""Who may call what on a metrics port."""

import pytest

from cluster.control.client import MARK_HEADER, TOKEN_HEADER
from cluster.control.rules import BY_TOKEN, Rules
from tests.control.asked import asked

OURS = {"Host": "127.0.0.1:9202", MARK_HEADER: "1"}
COORDINATOR = "192.168.1.26"
OURS_ALONE = Rules(COORDINATOR, ("rpi11",))
ACTIONS = ("/drain/worker:0", "/restart", "/run/x")


def status(
    target: str,
    headers: dict[str, str],
    rules: Rules = OURS_ALONE,
    client: str = "127.0.0.1",
) -> int:
    refusal = rules.refusal(asked("POST", target, headers, client, "192.168.1.17"))
    return 200 if refusal is None else int(refusal[0])


@pytest.mark.parametrize("target", ACTIONS)
@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, 200),
        ({"Host": "localhost:1"}, 200),
        ({"Host": "rpi11:9202"}, 200),
        ({"Host": "[::1]:9202"}, 200),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Host": "evil.example"}, 421),
        ({"Host": ""}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:9202"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({MARK_HEADER: ""}, 403),
        ({MARK_HEADER: "yes"}, 403),
    ],
)
def test_what_a_browser_could_send_is_refused(target: str, changed: dict[str, str], expected: int) -> None:
    assert status(target, {**OURS, **changed}) == expected


def test_without_the_mark_nothing_is_obeyed() -> None:
    assert status("/restart", {"Host": "localhost"}) == 403


@pytest.mark.parametrize(
    ("target", "client", "expected"),
    [
        ("/drain/worker:0", "192.168.1.17", 200),
        ("/drain/worker:0", "192.168.1.26", 403),
        ("/restart", "192.168.1.26", 200),
        ("/restart", "192.168.1.18", 403),
        ("/run/x", "192.168.1.26", 200),
        ("/run/x", "192.168.1.18", 403),
    ],
)
def test_the_address_decides_first(target: str, client: str, expected: int) -> None:
    assert status(target, OURS, client=client) == expected


@pytest.mark.parametrize(
    ("token", "given", "expected"),
    [("s3cret", {}, 403), ("s3cret", {TOKEN_HEADER: "other"}, 403), ("s3cret", {TOKEN_HEADER: "s3cret"}, 200)],
)
def test_where_there_is_a_token_it_is_asked_for(token: str, given: dict[str, str], expected: int) -> None:
    assert status("/restart", {**OURS, **given}, Rules(token=lambda: token)) == expected


@pytest.mark.parametrize("target", ["/restart", "/run/x"])
@pytest.mark.parametrize(
    ("token", "given", "expected"),
    [
        ("s3cret", {TOKEN_HEADER: "s3cret"}, 200),
        ("s3cret", {TOKEN_HEADER: "other"}, 403),
        ("s3cret", {}, 403),
        (None, {}, 403),
        (None, {TOKEN_HEADER: ""}, 403),
    ],
)
def test_in_pods_the_token_alone_decides(target: str, token: str | None, given: dict[str, str], expected: int) -> None:
    rules = Rules(BY_TOKEN, token=lambda: token)
    assert status(target, {**OURS, **given}, rules, client="10.42.0.9") == expected


def test_by_token_nobody_else_may_drain() -> None:
    rules = Rules(BY_TOKEN, token=lambda: "s3cret")
    assert status("/drain/worker:0", {**OURS, TOKEN_HEADER: "s3cret"}, rules, client="10.42.0.9") == 403


def test_reading_is_for_all_who_reach_the_port() -> None:
    """A Prometheus in a container knows this machine as `host.docker.internal`."""
    assert Rules().refusal(asked("GET", "/metrics", {"Host": "host.docker.internal:9201"})) is None


def test_a_header_that_stands_twice_is_no_value() -> None:
    request = asked("POST", "/restart", {"Host": "localhost", MARK_HEADER: "1", MARK_HEADER.lower(): "1"})
    assert Rules().refusal(request) is not None


@pytest.mark.parametrize("target", ["/", "/metrics", "/restart/now", "/drain", "/runs/x"])
def test_what_the_table_does_not_name_is_refused_to_everyone(target: str) -> None:
    assert status(target, OURS) == 403
