import pytest

from cluster.errors import ExitCode
from deploy.supervisor.policy import Ending, History, RestartPolicy

POLICY = RestartPolicy(
    first_delay_seconds=0.5, longest_delay_seconds=4.0, healthy_seconds=60.0, unready_limit=3, limit=10
)
CRASH = Ending(return_code=1, uptime_seconds=5.0, reached_ready=True)


def test_delays_double_up_to_the_longest_and_then_it_gives_up() -> None:
    history, delays = History(), []
    while (decision := POLICY.decide(CRASH, history)).restart:
        history = decision.history
        delays.append(decision.delay_seconds)
    assert delays == [0.5, 1.0, 2.0, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0]
    assert (
        decision.reason
        == "ended with exit code 1 (FAILED) after 5.0 s; 10 of 10 attempts ended without it being healthy"
    )


def test_a_role_that_was_never_ready_gets_few_attempts() -> None:
    early = Ending(return_code=1, uptime_seconds=0.2, reached_ready=False)
    history, attempts = History(), 1
    while (decision := POLICY.decide(early, history)).restart:
        history, attempts = decision.history, attempts + 1
    assert attempts == POLICY.unready_limit


def test_a_healthy_minute_forgives_earlier_failures() -> None:
    decision = POLICY.decide(Ending(-9, uptime_seconds=60.0, reached_ready=True), History(failures=9, ever_ready=True))
    assert decision.restart
    assert decision.delay_seconds == POLICY.first_delay_seconds
    assert decision.history == History(failures=1, ever_ready=True)


def test_a_long_start_that_never_got_ready_is_no_healthy_minute() -> None:
    ending = Ending(-9, uptime_seconds=300.0, reached_ready=False)
    assert not POLICY.decide(ending, History(failures=2)).restart


def test_a_fenced_role_comes_back_at_once_and_is_not_blamed() -> None:
    decision = POLICY.decide(Ending(-9, 5.0, reached_ready=True, fenced=True), History(failures=9, ever_ready=True))
    assert decision.restart
    assert decision.delay_seconds == 0.0
    assert decision.history.failures == 9


def test_a_thousand_injected_kills_change_nothing_about_a_roles_own_failures() -> None:
    fenced = Ending(-9, 0.1, reached_ready=False, fenced=True)
    history = POLICY.decide(CRASH, History()).history
    for _ in range(1000):
        decision = POLICY.decide(fenced, history)
        assert (decision.restart, decision.delay_seconds) == (True, 0.0)
        history = decision.history
    assert POLICY.decide(CRASH, history).delay_seconds == 2 * POLICY.first_delay_seconds


@pytest.mark.parametrize("code", [ExitCode.BAD_USAGE, ExitCode.WHEEL_MISSING, ExitCode.ILLEGAL_INSTRUCTION, -4])
@pytest.mark.parametrize("ever_ready", [False, True])
def test_what_no_restart_can_mend_is_left_at_once(code: int, ever_ready: bool) -> None:
    decision = POLICY.decide(Ending(code, 1.0, reached_ready=False), History(ever_ready=ever_ready))
    assert not decision.restart
    assert "a restart would end the same way" in decision.reason


@pytest.mark.parametrize("code", [ExitCode.PORT_TAKEN, ExitCode.TOO_LITTLE_MEMORY])
def test_a_taken_port_is_final_at_first_and_may_pass_later(code: int) -> None:
    ending = Ending(code, 0.1, reached_ready=False)
    assert not POLICY.decide(ending, History()).restart
    assert POLICY.decide(ending, History(failures=1, ever_ready=True)).restart


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (20, "exit code 20 (PORT_TAKEN)"),
        (77, "exit code 77"),
        (-9, "signal 9 (SIGKILL)"),
        (-250, "signal 250 (unknown)"),
    ],
)
def test_endings_are_named(code: int, words: str) -> None:
    assert Ending(code, 0.0, reached_ready=False).describe() == words


def test_a_revived_role_has_all_its_attempts_again() -> None:
    revived = POLICY.revived(History(failures=10, ever_ready=True))
    assert revived == History(failures=0, ever_ready=True)
    assert POLICY.revived(History(failures=1), reached_ready=True) == History(failures=0, ever_ready=True)


def test_a_role_that_was_asked_to_restart_is_started_at_once_and_has_not_failed() -> None:
    ending = Ending(ExitCode.RESTART_ASKED, uptime_seconds=5.0, reached_ready=True)
    decision = POLICY.decide(ending, History(failures=9, ever_ready=True))
    assert (decision.restart, decision.delay_seconds) == (True, 0.0)
    assert decision.history == History(failures=9, ever_ready=True)
