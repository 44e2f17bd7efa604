"""Strategies of wrong requests: each is bytes for one connection."""

import json

from hypothesis import strategies as st

from tests.recognise.service.exports import windows
from tests.recognise.service.noise import anything, damaged, leaf
from tests.recognise.service.raw import head, post
from tests.recognise.service.running import PATH, as_json

INFER = f"{PATH}/infer"

_leaf = leaf("windows", "FP32", "logits", "data", "\ud7ff", "\x00")
_json = anything("windows", "FP32", "logits", "data", "\ud7ff", "\x00", leaves=20)
_sizes = st.lists(st.integers(-3, 2**66), max_size=10)
_tensor = st.fixed_dictionaries(
    {},
    optional={
        "name": st.one_of(st.just("windows"), _leaf),
        "shape": st.one_of(st.just([1, 8, 3]), _sizes, _json),
        "datatype": st.one_of(st.just("FP32"), _leaf),
        "data": st.one_of(st.just([0.5] * 24), _json),
        "parameters": st.one_of(st.just({"binary_data_size": 96}), _json),
    },
)
_request = st.fixed_dictionaries(
    {"inputs": st.one_of(st.lists(_tensor, max_size=3), _json)},
    optional={"outputs": _json, "parameters": _json, "id": _leaf},
)
_body = st.one_of(
    st.binary(max_size=300),
    st.one_of(_json, _request).map(lambda value: json.dumps(value).encode()),
    st.integers(1, 100_000).map(lambda depth: b"[" * depth),
    st.integers(1, 30_000).map(lambda depth: b'{"inputs":' * depth),
    st.integers(1, 100_000).map(lambda count: b'{"inputs":[' + b"{}," * count + b"{}]}"),
)
_length = st.one_of(st.integers(-5, 2**70).map(str), st.text("0123456789abcxyz,+- ", max_size=12))
_line = st.one_of(
    st.builds(
        "{}: {}".format,
        st.text("abcdefgh-_ :\t", min_size=1, max_size=12),
        st.text(st.characters(codec="latin-1"), max_size=30),
    ),
    st.sampled_from(
        [
            "Transfer-Encoding: chunked",
            "Content-Length: 5",
            "Content-Length: -1",
            "Content-Length: x",
            "Content-Encoding: gzip",
            "Expect: 100-continue",
            "Connection: upgrade\r\nUpgrade: websocket",
            "Host: other",
            "Authorization: Bearer",
            "Range: bytes=0-",
            "Inference-Header-Content-Length: 1e3",
        ]
    ),
)
_method = st.sampled_from(["GET", "POST", "PUT", "HEAD", "OPTIONS", "TRACE", "CONNECT", "X" * 50])
_path = st.one_of(
    st.sampled_from([INFER, PATH, "/v2", "/metrics", "/%00", "/../../etc/passwd", "*"]),
    st.text("abc/%0123.-_~?&=", max_size=40).map(lambda text: f"/{text}"),
)


def requests(token: str) -> st.SearchStrategy[bytes]:
    """Wrong bodies with a right head, wrong heads, and bytes that are no HTTP."""

    def sized(body: bytes, length: str) -> bytes:
        return post(INFER, token, body, f"Inference-Header-Content-Length: {length}")

    def written(method: str, path: str, lines: list[str], body: bytes) -> bytes:
        return head(path, token, *lines, method=method) + body

    return st.one_of(
        _body.map(lambda body: post(INFER, token, body)),
        st.builds(sized, _body, _length),
        st.builds(written, _method, _path, st.lists(_line, max_size=4), st.binary(max_size=40)),
        st.binary(min_size=1, max_size=200).map(lambda noise: noise + b"\r\n\r\n"),
    )


def damaged_requests(token: str) -> st.SearchStrategy[bytes]:
    """Right requests, with JSON and with binary tensors, of which some places are changed."""
    given = windows(2)
    tensor = {"name": "windows", "shape": [2, 8, 3], "datatype": "FP32"}
    size = {"parameters": {"binary_data_size": len(given.tobytes())}}
    wanted = {"inputs": [tensor | size], "parameters": {"binary_data_output": True}}
    text = json.dumps(wanted).encode()
    length = f"Inference-Header-Content-Length: {len(text)}"
    right = (
        post(INFER, token, json.dumps(as_json(given)).encode()),
        post(INFER, token, text + given.tobytes(), length),
        head("/v2", token, method="GET"),
    )
    return damaged(st.sampled_from(right))
