import pytest

from core.backoff import Backoff
from core.errors import ExitCode
from deploy.supervisor.policy import Decision, History, RestartPolicy, RoleEnding
from tests.deploy.tables import Tables

rows = Tables(__file__)

POLICY = RestartPolicy(
    Backoff(first_seconds=0.5, longest_seconds=4.0),
    healthy_seconds=60.0,
    unready_limit=3,
    limit=10,
)


def decide(
    code: int = 1,
    seconds: float = 5.0,
    *,
    ready: bool = False,
    fenced: bool = False,
    failures: int = 0,
    ever_ready: bool = False,
) -> Decision:
    """What becomes of a role that ended so, after so many failures."""
    ending = RoleEnding(code, seconds, reached_ready=ready, fenced=fenced)
    return POLICY.decide(ending, History(failures, ever_ready))


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


def test_a_healthy_minute_forgives_earlier_failures() -> None:
    decision = decide(-9, 60.0, ready=True, failures=9, ever_ready=True)
    assert (decision.restart, decision.delay_seconds) == (True, POLICY.backoff.first_seconds)
    assert decision.history == History(failures=1, ever_ready=True)
    # A long start that never got ready is no healthy minute.
    assert not decide(-9, 300.0, failures=2).restart


@pytest.mark.parametrize(("code", "fenced"), [(-9, True), (ExitCode.RESTART_ASKED, False)])
def test_a_role_that_was_fenced_or_asked_to_restart_comes_back_at_once_and_is_not_blamed(
    code: int, fenced: bool
) -> None:
    decision = decide(code, ready=True, fenced=fenced, failures=9, ever_ready=True)
    assert (decision.restart, decision.delay_seconds) == (True, 0.0)
    assert decision.history == History(failures=9, ever_ready=True)


@pytest.mark.parametrize(
    "code", [ExitCode.BAD_USAGE, ExitCode.WHEEL_MISSING, ExitCode.ILLEGAL_INSTRUCTION, -4]
)
@pytest.mark.parametrize("ever_ready", [False, True])
def test_what_no_restart_can_mend_is_left_at_once(code: int, ever_ready: bool) -> None:
    decision = decide(code, ever_ready=ever_ready)
    assert not decision.restart
    assert "a restart would end the same way" in decision.reason


@pytest.mark.parametrize("code", [ExitCode.PORT_TAKEN, ExitCode.TOO_LITTLE_MEMORY])
def test_a_taken_port_is_final_at_first_and_may_pass_later(code: int) -> None:
    assert not decide(code).restart
    assert decide(code, failures=1, ever_ready=True).restart


@rows("code", "words")
def test_endings_are_named(code: int, words: str) -> None:
    assert RoleEnding(code, 0.0, reached_ready=False).describe() == words


def test_a_revived_role_has_all_its_attempts_again() -> None:
    fresh = History(failures=0, ever_ready=True)
    assert POLICY.revived(History(failures=10, ever_ready=True)) == fresh
    assert POLICY.revived(History(failures=1), reached_ready=True) == fresh
