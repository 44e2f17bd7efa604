"""What the service refuses, and that it says why: sizes, times, numbers of connections, and noise."""

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recognise.service.limits import Limits
from tests.service.exports import export, windows
from tests.service.malformed import INFER, requests
from tests.service.raw import Answer, exchange, head, post, read
from tests.service.running import Service, as_json, service

LIMITS = Limits()
PIECE = b" " * (1 << 20)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("service")
    export(folder / "export")
    with service(folder, "--model", str(folder / "export")) as made:
        yield made


def answers(running: Service) -> bool:
    """Whether a right request still gets its answer."""
    with running.client() as client:
        return client.post(INFER, json=as_json(windows(1))).status_code == 200


def refused(answer: Answer | None, status: int, words: str) -> None:
    assert answer is not None
    assert (answer.status, words in answer.error) == (status, True), answer


def test_a_body_that_announces_too_much_is_refused(running: Service) -> None:
    size = LIMITS.body_bytes + 1
    whole = [head(INFER, running.token, f"Content-Length: {size}"), *[PIECE] * 16, b" "]
    refused(exchange(running.port, *whole), 413, f"at most {LIMITS.body_bytes} bytes")
    expecting = head(INFER, running.token, f"Content-Length: {2**62}", "Expect: 100-continue")
    refused(exchange(running.port, expecting), 413, f"at most {LIMITS.body_bytes} bytes")


def test_a_body_without_a_length_is_refused_once_it_is_too_long(running: Service) -> None:
    chunk = f"{len(PIECE):x}\r\n".encode() + PIECE + b"\r\n"
    whole = [head(INFER, running.token, "Transfer-Encoding: chunked"), *[chunk] * 20, b"0\r\n\r\n"]
    refused(exchange(running.port, *whole), 413, f"at most {LIMITS.body_bytes} bytes")


def test_more_bodies_than_there_is_room_for_are_refused(running: Service) -> None:
    announced = head(INFER, running.token, f"Content-Length: {LIMITS.body_bytes}", "Expect: 100-continue")
    with ExitStack() as stack:
        for _ in range(LIMITS.held_bytes // LIMITS.body_bytes):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", running.port), timeout=30))
            connection.sendall(announced)
            assert connection.recv(65_536).startswith(b"HTTP/1.1 100")  # its room is taken
        refused(exchange(running.port, announced), 503, "ask again later")
        with running.client() as client:
            assert client.get("/v2").status_code == 200
    assert answers(running)


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"[" * 150_000, 400, "expected at most 4864 lists and objects"),
        (b"[" * 4000, 400, "expected JSON: recursion limit exceeded"),
        (b'{"a":' * 4000, 400, "expected JSON: recursion limit exceeded"),
        (b'{"inputs":[' + b"1," * 30_000 + b"1]}", 413, "expected at most 13312 commas"),
        (b'{"inputs":[NaN]}', 400, "expected JSON"),
        (b"\xff\xfe", 400, "expected JSON"),
        (b"", 400, "expected JSON"),
        (b'{"inputs":["' + b"x" * 10_000_000 + b'"]}', 400, "inputs.0"),
    ],
)
def test_json_is_bounded_in_depth_and_number(running: Service, body: bytes, status: int, words: str) -> None:
    refused(exchange(running.port, post(INFER, running.token, body)), status, words)


@pytest.mark.parametrize("length", ["0", "-1", "1e3", "99", "4294967296000", "1, 1"])
def test_a_wrong_length_of_the_header_is_refused(running: Service, length: str) -> None:
    asked = post(INFER, running.token, b"{}", f"Inference-Header-Content-Length: {length}")
    refused(exchange(running.port, asked), 400, "Inference-Header-Content-Length: expected")


def test_a_body_that_is_compressed_is_refused(running: Service) -> None:
    refused(exchange(running.port, post(INFER, running.token, b"x", "Content-Encoding: gzip")), 415, "not compressed")


def test_a_long_head_is_refused(running: Service) -> None:
    for noise in (b"GET /v2 HTTP/1.1\r\nX: " + b"a" * 2 * LIMITS.head_bytes, b"G" * 2 * LIMITS.head_bytes):
        answer = exchange(running.port, noise)
        assert answer is not None
        assert answer.status == 400
        assert answer.error == f"expected a request of HTTP/1.1 with a head of at most {LIMITS.head_bytes} bytes"
    assert answers(running)


def test_binary_tensors_that_do_not_fit_their_shape_are_refused(running: Service) -> None:
    tensor = {"name": "windows", "shape": [512, 8, 3], "datatype": "FP32"}
    for said, sent in ((49_152, 96), (96, 96), (True, 96), (49_152, 49_153)):
        text = json.dumps({"inputs": [{**tensor, "parameters": {"binary_data_size": said}}]}).encode()
        asked = post(INFER, running.token, text + bytes(sent), f"Inference-Header-Content-Length: {len(text)}")
        refused(exchange(running.port, asked), 400, "has 49152 bytes")


def test_more_connections_than_allowed_close_the_oldest_idle_one(running: Service) -> None:
    with ExitStack() as stack:
        idle = [
            stack.enter_context(socket.create_connection(("127.0.0.1", running.port), timeout=30))
            for _ in range(LIMITS.connections + 20)
        ]
        assert answers(running)
        idle[0].settimeout(30)
        with suppress(ConnectionResetError):  # closed as well
            assert idle[0].recv(1) == b""
    assert answers(running)


def test_a_request_that_ends_within_its_body_leaves_the_service_as_it_was(running: Service) -> None:
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", running.port), timeout=30) as connection:
            connection.sendall(head(INFER, running.token, f"Content-Length: {LIMITS.body_bytes}") + b"{")
    assert answers(running)  # the room that they took is free again


def test_two_requests_in_one_piece_get_two_answers(running: Service) -> None:
    asked = post(INFER, running.token, json.dumps(as_json(windows(1))).encode())
    with socket.create_connection(("127.0.0.1", running.port), timeout=30) as connection:
        connection.sendall(asked * 2)
        first = read(connection)
        assert first is not None
        second = read(connection, first.rest)
    assert second is not None
    assert (first.status, second.status) == (200, 200)
    assert first.body == second.body


@settings(
    max_examples=300, deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
@given(data=st.data())
def test_noise_is_answered_with_a_reason_or_ends_its_connection(running: Service, data: st.DataObject) -> None:
    noise = data.draw(requests(running.token))
    check(running.port, noise)


def check(port: int, noise: bytes) -> None:
    """Every answer but 200 has a reason; a request that was cut short gets its connection closed by us."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        try:
            connection.sendall(noise)
            connection.shutdown(socket.SHUT_WR)
            answer = read(connection)
        except (BrokenPipeError, ConnectionResetError):
            return
    if answer is None or answer.status in (100, 200) or noise.startswith(b"HEAD"):
        return
    assert 400 <= answer.status < 600, (noise, answer)
    assert answer.status != 500, (noise, answer)
    assert answer.error, (noise, answer)
