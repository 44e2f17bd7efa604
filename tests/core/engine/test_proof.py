"""A role that leaves during its proof is a failed join or a lost server; who answers is judged.

What the role says is played.
"""

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.jobs.session import Session
from core.engine import devices
from core.engine.changes import Changes, ParameterServerLost
from core.engine.devices import unproved
from core.engine.membership import Membership
from core.engine.runtime import Peers, Runtime
from core.engine.workers import Joined, JoinFailed
from core.ground.errors import UsageError
from core.ground.lazy import tf
from tests.tables import table

LEFT = table("core/engine/tables", "left during the proof")
LACKS = (
    "NotFoundError",
    "'PsclusterProof' is neither a type of a primitive operation nor a name of a function",
)

Plays = Callable[[tuple[str, str] | tuple[int, ...]], None]


@pytest.fixture
def plays(monkeypatch: pytest.MonkeyPatch) -> Plays:
    """Have every role answer so, or fail so."""

    def play(answer: tuple[Any, ...]) -> None:
        def step(_place: str) -> tuple[int, ...]:
            if isinstance(answer[0], str):
                raise getattr(tf.errors, answer[0])(None, None, answer[1])
            return answer

        monkeypatch.setattr(devices, "_step", step)
        monkeypatch.setattr(devices, "_own_proof", lambda: (1, 2))

    return play


def connected() -> Any:
    """A runtime without TensorFlow's own; it checks what joins."""
    runtime: Any = Runtime.__new__(Runtime)
    runtime.peers = Peers("", (), ("127.0.0.1:1",) * 2)
    runtime.refused = {}
    runtime.update = lambda _: None
    runtime.require(unproved)
    return runtime


def join(runtime: Any) -> Joined | JoinFailed:
    def nothing(*_: object) -> None:
        """No process is watched."""

    guardian: Any = SimpleNamespace(quiet=nullcontext, unfence=nothing, watch=nothing)
    changes = Changes(runtime, Membership(range(2)), guardian)
    changes.join(1)
    ((found,),) = (changes.make(nothing)[1],)
    return found


@pytest.mark.parametrize("answer", LEFT)
def test_a_worker_that_leaves_during_its_proof_has_failed_to_join(
    plays: Plays, answer: tuple[str, str]
) -> None:
    runtime = connected()
    plays(LACKS)
    assert isinstance(join(runtime), JoinFailed)
    assert "cannot load the library" in runtime.refused[1]
    plays(answer)
    found = join(runtime)
    assert isinstance(found, JoinFailed)
    assert found.reason.startswith(f"could not join: {answer[0]}")
    assert runtime.refused == {}, "nothing is known of the process that comes next"


@pytest.mark.parametrize("answer", LEFT)
def test_a_server_that_leaves_during_its_proof_is_lost(
    plays: Plays, answer: tuple[str, str]
) -> None:
    server = SimpleNamespace(name="ps:0", node="pi")
    session: Any = SimpleNamespace(servers=[server], places=["/ps"], runtime=connected())
    plays(answer)
    with pytest.raises(ParameterServerLost, match=answer[0]):
        Session.require_library(session)


@pytest.mark.parametrize("answer", [LACKS, (1, 3)])
def test_what_a_server_that_lives_answers_is_a_verdict_with_a_remedy(
    plays: Plays, answer: tuple[Any, ...]
) -> None:
    server = SimpleNamespace(name="ps:0", node="pi")
    session: Any = SimpleNamespace(servers=[server], places=["/ps"], runtime=connected())
    plays(answer)
    with pytest.raises(UsageError, match=r"parameter server ps:0 on pi: .* install the same"):
        Session.require_library(session)
    plays((1, 2))
    Session.require_library(session)
