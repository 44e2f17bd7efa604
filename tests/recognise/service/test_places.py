"""Clients without the token have few places, and take none from those with it."""

from contextlib import suppress
from functools import partial

import pytest
from websockets.exceptions import WebSocketException

from benchmarks import service_floods as floods
from recognise.service.limits import RequestError
from recognise.service.live.sockets import MOST_UNPROVEN_BYTES, TOO_LARGE
from recognise.service.places import SessionPlaces, UnprovenPlaces
from tests.recognise.exports import export
from tests.recognise.service.raw import read
from tests.recognise.service.running import Service
from tests.recognise.service.streaming import ended, socket

EXPORT = export
TRIES = 20


def test_an_address_has_a_quarter_and_its_oldest_gives_way() -> None:
    """A network of IPv6 is one address."""
    places = UnprovenPlaces(4)
    left: list[int] = []
    addresses = ["a", "a", "2001:db8::1", "2001:db8::2", "::ffff:10.0.0.1", "::ffff:10.0.0.2", "d"]
    for number, address in enumerate(addresses):
        places.enter(number, address, partial(left.append, number))
    assert left == [0, 2, 1]


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


def test_a_large_first_message_without_the_token_is_refused(running: Service) -> None:
    with socket(running, headers={}) as connection:
        with suppress(OSError, WebSocketException):
            connection.send("x" * (MOST_UNPROVEN_BYTES + 100_000))
        words = f"expected at most {MOST_UNPROVEN_BYTES} bytes before the token"
        assert ended(connection) == (words, TOO_LARGE)


def test_a_body_without_the_token_is_answered_at_once_and_read_no_further(running: Service) -> None:
    with running.connected() as connection:
        connection.sendall(floods.HUNG)
        answer = read(connection)
        assert answer is not None
        assert answer.status == 401
        assert connection.recv(1) == b""
