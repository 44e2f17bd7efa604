from typing import Any

from core.ground.errors import ExitCode
from core.ground.waiting import Backoff
from deploy.supervisor.processes import History, RestartPolicy, RoleEnding
from tests.deploy.tables import Tables

rows = Tables(__file__)

POLICY = RestartPolicy(
    Backoff(first_seconds=0.5, longest_seconds=4.0),
    healthy_seconds=60.0,
    unready_limit=3,
    limit=10,
)


def until_given_up(*, ready: bool) -> tuple[list[float], str]:
    """The delays before each restart of a role that keeps ending, and the last reason."""
    ending = RoleEnding(1, 5.0, reached_ready=ready)
    history = History()
    delays = []
    while (decision := POLICY.decide(ending, history)).restart:
        history = decision.history
        delays.append(decision.delay_seconds)
    return delays, decision.reason


def test_delays_double_up_to_the_longest_and_then_it_gives_up() -> None:
    delays, reason = until_given_up(ready=True)
    assert delays == [0.5, 1.0, 2.0, *[4.0] * 6]
    attempts = "10 of 10 attempts ended without it being healthy"
    assert reason == f"ended with exit code 1 (FAILED) after 5.0 s; {attempts}"


def test_a_role_that_was_never_ready_gets_few_attempts() -> None:
    delays, _ = until_given_up(ready=False)
    assert len(delays) + 1 == POLICY.unready_limit


@rows("row")
def test_what_becomes_of_a_role(row: dict[str, Any]) -> None:
    code = row["code"]
    ready = row.get("ready", False)
    ending = RoleEnding(
        code if isinstance(code, int) else ExitCode[code],
        row.get("seconds", 5.0),
        reached_ready=ready,
        fenced=row.get("fenced", False),
    )
    decision = POLICY.decide(ending, History(row.get("failures", 0), row.get("ever_ready", False)))
    assert decision.restart == ("delay" in row or "again" in row)
    if "delay" in row:
        assert decision.delay_seconds == row["delay"]
        assert decision.history == History(row["then"], ever_ready=True)
    assert row.get("says", "") in decision.reason


@rows("code", "words")
def test_endings_are_named(code: int, words: str) -> None:
    assert RoleEnding(code, 0.0, reached_ready=False).describe() == words


def test_a_revived_role_has_all_its_attempts_again() -> None:
    fresh = History(failures=0, ever_ready=True)
    assert POLICY.revived(History(failures=10, ever_ready=True)) == fresh
    assert POLICY.revived(History(failures=1), reached_ready=True) == fresh
