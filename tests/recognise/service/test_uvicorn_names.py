"""What three modules override of uvicorn, pinned against the installed uvicorn.

`core.web.entrance`, `recognise.service.server` and `recognise.service.live.sockets` subclass its
protocols. Its next minor version may rename any of these.
"""

import inspect

import pytest
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from core.web.entrance import HttpConnection
from recognise.service import server
from recognise.service.live.sockets import Socket
from recognise.service.server import ServiceConnection
from tests.tables import table

NAMES = table("recognise/service/uvicorn", "overridden")


def overridden(ours: type, theirs: type) -> set[str]:
    return {name for name in vars(ours) if hasattr(theirs, name) and not name.startswith("__")}


@pytest.mark.parametrize(
    ("name", "ours", "theirs"),
    [
        ("http", (HttpConnection, ServiceConnection), H11Protocol),
        ("websocket", (Socket,), WebSocketsSansIOProtocol),
        ("server", (server._Server,), uvicorn.Server),
    ],
)
def test_what_we_override_is_there_with_the_same_parameters(
    name: str, ours: tuple[type, ...], theirs: type
) -> None:
    assert set().union(*(overridden(one, theirs) for one in ours)) == set(NAMES[name])
    for each, parameters in NAMES[name].items():
        found = inspect.signature(getattr(theirs, each)).parameters
        assert " ".join(found) == parameters
