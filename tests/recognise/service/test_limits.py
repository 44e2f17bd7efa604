"""Refusals of the service and their reasons: sizes, times, connections, and noise."""

import json
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from recognise.service.limits import Limits, RequestError
from recognise.service.live import messages
from recognise.service.tensors import question
from tests.recognise.service.exports import export, windows
from tests.recognise.service.malformed import INFER, requests, status_of
from tests.recognise.service.raw import Answer, exchange, head, post
from tests.recognise.service.running import Service, as_json

LIMITS = Limits()
PIECE = b" " * (1 << 20)
EXPORT = export


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
    announced = head(
        INFER, running.token, f"Content-Length: {LIMITS.body_bytes}", "Expect: 100-continue"
    )
    with ExitStack() as stack:
        for _ in range(LIMITS.held_bytes // LIMITS.body_bytes):
            connection = stack.enter_context(running.connected())
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
def test_json_is_bounded_in_depth_and_number(
    running: Service, body: bytes, status: int, words: str
) -> None:
    refused(exchange(running.port, post(INFER, running.token, body)), status, words)


@pytest.mark.parametrize("length", ["0", "-1", "1e3", "99", "4294967296000", "1, 1"])
def test_a_wrong_length_of_the_header_is_refused(running: Service, length: str) -> None:
    asked = post(INFER, running.token, b"{}", f"Inference-Header-Content-Length: {length}")
    refused(exchange(running.port, asked), 400, "Inference-Header-Content-Length: expected")


@pytest.mark.parametrize("begin", [b"GET /v2 HTTP/1.1\r\nX: ", b"G"])
def test_a_long_head_is_refused(running: Service, begin: bytes) -> None:
    sent = begin + b"G" * 2 * LIMITS.head_bytes
    refused(exchange(running.port, sent), 400, "Invalid HTTP request received.")
    assert answers(running)


def test_more_bytes_than_a_binary_tensor_has_are_refused(running: Service) -> None:
    tensor = {"name": "windows", "shape": [1, 8, 3], "datatype": "FP32"}
    size = {"parameters": {"binary_data_size": 96}}
    text = json.dumps({"inputs": [tensor | size]}).encode()
    length = f"Inference-Header-Content-Length: {len(text)}"
    asked = post(INFER, running.token, text + bytes(97), length)
    refused(exchange(running.port, asked), 400, "has 96 bytes")


def test_a_request_that_ends_within_its_body_leaves_the_service_as_it_was(running: Service) -> None:
    for _ in range(20):
        with running.connected() as connection:
            connection.sendall(
                head(INFER, running.token, f"Content-Length: {LIMITS.body_bytes}") + b"{"
            )
    assert answers(running)  # the room that they took is free again


@settings(
    max_examples=300,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_noise_is_answered_with_a_reason_or_ends_its_connection(
    running: Service, data: st.DataObject
) -> None:
    """Every answer but 200 has a reason; the service closes after a request cut short."""
    assert status_of(running, data.draw(requests(running.token)))


def errors_of(raised: pytest.ExceptionInfo[RequestError]) -> int:
    problem = raised.value.__context__
    assert isinstance(problem, ValidationError)
    return problem.error_count()


def test_numbers_that_are_none_cost_one_error() -> None:
    """An error for each of 589,824 took 600 MB and stopped the service."""
    shape = (128, 9)
    tensor = {"name": "windows", "shape": [8, 128, 9], "datatype": "FP32"}
    body = json.dumps({"inputs": [{**tensor, "data": ["x"] * (8 * 128 * 9)}]}).encode()
    with pytest.raises(RequestError, match=r"data\.0: ") as raised:
        question(body, None, shape, Limits())
    assert errors_of(raised) == 1


def test_readings_that_are_none_cost_one_error_a_list() -> None:
    words = json.dumps({"times": ["x"] * 200, "acceleration": [["y"] * 3] * 200})
    with pytest.raises(RequestError) as raised:
        messages.readings(words)
    assert errors_of(raised) <= 4


@pytest.mark.parametrize("read", [messages.hello, messages.readings])
def test_a_message_of_very_many_keys_is_refused_unread(read: Callable[[str], object]) -> None:
    words = json.dumps({"schema": 1} | {f"k{number}": 0 for number in range(30_000)})
    with pytest.raises(RequestError, match="at most 64 keys") as raised:
        read(words)
    assert raised.value.__context__ is None
