"""The names of uvicorn that three modules use, pinned against the installed uvicorn.

`core.web.entrance`, `recognise.service.server` and `recognise.service.live.sockets` subclass its
protocols. Its next minor version may rename any of these.
"""

import ast
import asyncio
import inspect
import textwrap
from typing import Any

import pytest
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

from core.web.entrance import Entrance, HttpConnection
from recognise.service import server
from recognise.service.entrance import ServiceConnection, ServiceEntrance
from recognise.service.live.sockets import Socket
from tests.recognise.tables import table

PROTOCOL = ["config", "server_state", "app_state", "_loop"]
NAMES = table("service/uvicorn", "overridden")
READ = table("service/uvicorn", "read")


def made(kind: Any) -> Any:
    """Return a protocol of uvicorn's, without a connection."""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        raise NotImplementedError

    async def in_a_loop() -> Any:
        config = uvicorn.Config(application, log_config=None, http="h11", ws="websockets-sansio")
        config.load()
        return kind(config, ServerState(), {}, asyncio.get_running_loop())

    return asyncio.run(in_a_loop())


def overridden(ours: type, theirs: type) -> set[str]:
    return {name for name in vars(ours) if hasattr(theirs, name) and not name.startswith("__")}


def read(ours: type, names: set[str]) -> set[str]:
    """Return which of these names of `self` the class uses."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(ours)))
    return names & {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in ("self", "connection")
    }


HTTP = (HttpConnection, ServiceConnection)
KINDS = [
    ("http", HTTP, H11Protocol),
    ("websocket", (Socket,), WebSocketsSansIOProtocol),
    ("server", (server._Server,), uvicorn.Server),
]


@pytest.mark.parametrize(("name", "ours", "theirs"), KINDS)
def test_what_we_override_is_there_with_the_same_parameters(
    name: str, ours: tuple[type, ...], theirs: type
) -> None:
    assert set().union(*(overridden(one, theirs) for one in ours)) == set(NAMES[name])
    for each, parameters in NAMES[name].items():
        found = inspect.signature(getattr(theirs, each)).parameters
        assert " ".join(found) == parameters


@pytest.mark.parametrize(("name", "ours", "theirs"), KINDS[:2])
def test_what_we_read_is_there(name: str, ours: tuple[type, ...], theirs: type) -> None:
    assert list(inspect.signature(theirs).parameters) == PROTOCOL
    if ours is HTTP:
        ours = (*HTTP, Entrance, ServiceEntrance)
    names = set(dir(made(theirs)))
    pinned = set(READ[name].split())
    assert pinned <= names
    assert set().union(*(read(one, names) for one in ours)) - set(NAMES[name]) == pinned


def test_a_connection_is_idle_from_a_complete_response_on() -> None:
    assert made(H11Protocol).cycle is None
    assert "self.response_complete = True" in inspect.getsource(RequestResponseCycle)


def test_uvicorn_believes_that_reading_is_paused_where_we_say_so() -> None:
    source = inspect.getsource(WebSocketsSansIOProtocol.send_receive_event_to_app)
    assert "if not self.read_paused:" in source
    assert "self.read_paused and self.queue.empty()" in inspect.getsource(
        WebSocketsSansIOProtocol.receive
    )


def test_an_application_whose_client_has_gone_ends_without_a_word() -> None:
    assert "except ClientDisconnected:\n            pass" in inspect.getsource(
        WebSocketsSansIOProtocol.run_asgi
    )


def test_a_server_that_listens_nowhere_takes_no_sockets_and_has_our_connections() -> None:
    assert list(inspect.signature(uvicorn.Server.serve).parameters) == ["self", "sockets"]
    state = ServerState()
    assert (state.connections, state.tasks) == (set(), set())
