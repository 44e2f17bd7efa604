"""Clients without the token have few places, and take none from those with it."""

import json
import socket as sockets
from contextlib import ExitStack, suppress
from functools import partial

import pytest
from websockets.exceptions import ConnectionClosed

from benchmarks import service_floods as floods
from core.control.door import MOST_UNPROVEN_BYTES, Listener, Visitor, network_of
from recognise.service.limits import RequestError, SessionPlaces
from tests.recognise.exports import export
from tests.recognise.service.raw import read
from tests.recognise.service.running import Service
from tests.recognise.service.streaming import ended, socket

EXPORT = export
TRIES = 20
NO_TOKEN = "expected token in the first message: the token that `fab serve` names"


def test_an_address_has_a_quarter_and_its_oldest_gives_way() -> None:
    with ExitStack() as stack:
        listener = stack.enter_context(Listener("127.0.0.1", 0, "a test", 4, share=4))
        clients = []
        for address in ("127.0.0.1", "127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4"):
            clients.append(
                stack.enter_context(
                    sockets.create_connection(listener.getsockname(), 5, (address, 0))
                )
            )
            stack.enter_context(listener.accept()[0])
        assert clients[0].recv(1) == b""
        for client in clients[1:]:
            client.setblocking(False)
            with pytest.raises(BlockingIOError):
                client.recv(1)


def test_of_connections_with_the_token_the_oldest_idle_one_gives_way() -> None:
    """One that is being answered stays; while all are, a new connection is closed."""
    with ExitStack() as stack:
        listener = stack.enter_context(Listener("127.0.0.1", 0, "a test", 4))

        def proven() -> tuple[sockets.socket, Visitor]:
            address = listener.getsockname()
            client = stack.enter_context(sockets.create_connection(address, 5))
            visitor, _ = listener.accept()
            stack.enter_context(visitor)
            visitor.prove()
            return client, visitor

        (idle, _), *others = [proven() for _ in range(4)]
        for _, visitor in others:
            stack.enter_context(visitor.request())
        others.append(proven())
        assert idle.recv(1) == b""
        stack.enter_context(others[-1][1].request())
        with pytest.raises(BlockingIOError):
            proven()
        for client, _ in others:
            client.setblocking(False)
            with pytest.raises(BlockingIOError):
                client.recv(1)


def test_a_network_of_ipv6_is_one_address() -> None:
    assert network_of("2001:db8::1") == network_of("2001:db8::2") != network_of("2001:db9::1")
    assert network_of("::ffff:10.0.0.1") == network_of("10.0.0.1") != network_of("10.0.0.2")


def test_while_all_sessions_are_held_the_address_with_the_most_gives_way() -> None:
    places = SessionPlaces(4)
    ended: list[int] = []
    for number, address in enumerate("aaaabbc"):
        with suppress(RequestError):
            places.enter(number, address, partial(ended.append, number))
    assert ended == [3, 2, 1]
    with pytest.raises(RequestError, match="4 sessions are open already"):
        places.enter(7, "a", partial(ended.append, 7))


def target(running: Service) -> floods.Target:
    return floods.Target(running.port, running.token, running.process.pid)


@pytest.mark.parametrize("address", [floods.HERE, floods.ELSEWHERE])
@pytest.mark.parametrize("flood", floods.FLOODS)
def test_clients_without_the_token_keep_none_out(
    running: Service, flood: str, address: str
) -> None:
    with floods.flooded(running.port, floods.FLOODS[flood], address):
        assert floods.share(floods.begins, target(running), TRIES) >= 0.95
        assert floods.share(floods.is_answered, target(running), TRIES) >= 0.95


def test_a_page_that_names_the_token_comes_in_beside_silent_ones(running: Service) -> None:
    begins = partial(floods.begins, in_message=True)
    with floods.flooded(running.port, floods.SILENT, floods.ELSEWHERE):
        assert floods.share(begins, target(running), TRIES) >= 0.95


@pytest.mark.parametrize(
    ("greedy", "megabytes"), [(floods.without_token, 16), (floods.with_token, 64)]
)
def test_what_one_client_may_cost(running: Service, greedy: floods.Greedy, megabytes: int) -> None:
    """The first time the memory that the service keeps for good comes in."""
    floods.begins(target(running))
    floods.cost(target(running), greedy(target(running)))
    assert floods.cost(target(running), greedy(target(running))) <= megabytes


def test_a_large_first_message_without_the_token_ends_its_connection(running: Service) -> None:
    with socket(running, headers={}) as connection:
        with suppress(OSError, ConnectionClosed):
            connection.send("x" * (MOST_UNPROVEN_BYTES + 100_000))
        with pytest.raises(ConnectionClosed) as closed:
            connection.recv()
        assert closed.value.rcvd is None
    with socket(running, headers={}) as connection:
        connection.send(json.dumps({"resume": "x" * (MOST_UNPROVEN_BYTES - 20_000)}))
        assert ended(connection) == (NO_TOKEN, 1008)


def test_a_body_without_the_token_is_answered_at_once_and_read_no_further(running: Service) -> None:
    with running.connected() as connection:
        connection.sendall(floods.HUNG)
        answer = read(connection)
        assert answer is not None
        assert answer.status == 401
        assert connection.recv(1) == b""
