from core.ground.errors import ExitCode
from core.ground.waiting import Backoff
from core.inventory import load
from deploy.jobs.foreground_job import JobEnding, JobRestartPolicy
from tests.core.inventory.cases import PROJECT
from tests.deploy.tables import Tables

rows = Tables(__file__)

POLICY = JobRestartPolicy(
    Backoff(first_seconds=0.5, longest_seconds=4.0), limit=5, window_seconds=600.0
)
LOST = JobEnding(ExitCode.SERVER_LOST, seconds=3.0)


def test_delays_double_up_to_the_longest_and_the_sixth_loss_within_the_window_is_the_last() -> None:
    restarts: list[float] = []
    delays = []
    while (decision := POLICY.decide(LOST, restarts, now=100.0)).restart:
        restarts.append(100.0)
        delays.append(decision.delay_seconds)
    assert delays == [0.5, 1.0, 2.0, 4.0, 4.0]
    assert (
        decision.reason
        == "ended with exit code 24 (SERVER_LOST) after 3.0 s; not restarted: 5 restarts in the"
        " last 600 s, 5 are allowed"
    )


def test_the_window_slides() -> None:
    restarts = [0.0, 10.0, 20.0, 30.0, 40.0]
    assert not POLICY.decide(LOST, restarts, now=599.0).restart
    decision = POLICY.decide(LOST, restarts, now=605.0)
    assert (decision.restart, decision.delay_seconds) == (True, 4.0)
    assert "restart 5 of 5 within 600 s, in 4.0 s" in decision.reason
    assert POLICY.decide(LOST, restarts, now=2000.0).delay_seconds == POLICY.backoff.first_seconds


@rows("code", "restart", "reason")
def test_a_lost_server_and_a_death_are_made_up_for(code: int, restart: bool, reason: str) -> None:
    decision = POLICY.decide(JobEnding(code, 1.0), (), now=0.0)
    assert decision.restart == restart
    assert reason in decision.reason
    assert bool(reason) == bool(decision.reason)
    # A person who interrupts has the last word.
    assert not POLICY.decide(JobEnding(code, 1.0, interrupted=True), (), now=0.0).restart


def test_a_port_may_be_borrowed_only_while_a_coordinator_is_away() -> None:
    taken = JobEnding(ExitCode.PORT_TAKEN, 1.0)
    assert not POLICY.decide(taken, (), now=10.0).restart
    assert POLICY.decide(taken, (5.0,), now=10.0).restart


@rows("code", "interrupted", "exit_code")
def test_the_exit_code_of_an_ending(code: int, interrupted: bool, exit_code: int) -> None:
    assert JobEnding(code, 1.0, interrupted).exit_code == exit_code


@rows("job", "mode", "needed")
def test_only_training_without_a_cluster_needs_no_roles(job: str, mode: str, needed: bool) -> None:
    inventory = load(PROJECT / "inventories/local.yaml", [f"jobs.train.mode={mode}"])
    assert inventory.needs_roles(job) == needed
