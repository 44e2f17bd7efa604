"""When a parameter server counts as lost."""

import socket
import threading
from contextlib import ExitStack
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from core.engine import changes
from core.engine.changes import ParameterServerLost, raise_if_server_lost
from core.engine.guardian import Loss
from core.ground.errors import ExitCode
from core.ground.lazy import tf

SAID = (
    "InvalidArgumentError: {{function_node __inference_unpacked_1269}} Unable to find the relevant"
    " tensor remote_handle: Op ID: 16, Output num: 0. (from"
    " /job:{role}/replica:0/task:1/device:CPU:0)"
)
WAIT_SECONDS = 30.0
NO_SERVERS: Any = SimpleNamespace(peers=SimpleNamespace(parameter_servers=()))


def test_a_server_that_has_forgotten_a_parameter_is_lost() -> None:
    """It was killed while no worker was there, and answers again."""
    with pytest.raises(
        ParameterServerLost, match=r"^parameter server ps:1 has restarted without .*Op ID: 16"
    ) as raised:
        raise_if_server_lost(NO_SERVERS, [SAID.replace("{role}", "ps")])
    assert raised.value.exit_code == ExitCode.SERVER_LOST


def test_what_a_worker_says_of_itself_ends_no_job() -> None:
    said = [
        SAID.replace("{role}", "worker"),
        "UnavailableError: Socket closed (from /job:ps/replica:0/task:1)",
    ]
    raise_if_server_lost(NO_SERVERS, said)


def test_all_servers_are_asked_at_the_same_time() -> None:
    together = threading.Barrier(3)
    with ExitStack() as stack:
        listeners = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        addresses = tuple(f"127.0.0.1:{listener.getsockname()[1]}" for listener in listeners)
        runtime: Any = SimpleNamespace(
            peers=SimpleNamespace(parameter_servers=addresses),
            ask_server=lambda task: together.wait(WAIT_SECONDS),
        )
        raise_if_server_lost(runtime, ["its call failed"])
        assert not together.broken


def test_one_broken_connection_of_our_own_is_no_lost_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(changes, "RETRY_SECONDS", 0.0)
    answers = iter([tf.errors.UnavailableError(None, None, "Socket closed"), None])

    def ask_server(task: int) -> None:
        problem = next(answers)
        if problem is not None:
            raise problem

    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        runtime: Any = SimpleNamespace(
            peers=SimpleNamespace(parameter_servers=(address,)), ask_server=ask_server
        )
        raise_if_server_lost(runtime, ["its call failed"])
    assert next(answers, "asked again") == "asked again"


@pytest.mark.parametrize(
    ("cut_off", "words"),
    [
        ([], r"it refuses connections; Socket closed"),
        ([Loss("ps:0", "", 10)], r"it has answered no probe for 10 s"),
    ],
    ids=["refuses", "cut off by the watchdog"],
)
def test_a_server_that_is_lost_is_named_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, cut_off: list[Loss], words: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    runtime: Any = SimpleNamespace(peers=SimpleNamespace(parameter_servers=(address,)))
    monkeypatch.setattr(
        changes, "losses", lambda: [replace(loss, address=address) for loss in cut_off]
    )
    with pytest.raises(ParameterServerLost, match=rf"ps:0 at {address} is gone \({words}\)"):
        raise_if_server_lost(runtime, ["Socket closed"])
