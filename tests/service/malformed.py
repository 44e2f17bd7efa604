"""Strategies of wrong requests: each is bytes for one connection."""

import json

from hypothesis import strategies as st

from tests.service.raw import head, post
from tests.service.running import PATH

INFER = f"{PATH}/infer"

_leaf = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False), st.text(max_size=20),
    st.sampled_from(["windows", "FP32", "logits", "data", "\ud7ff", "\x00"]),
)  # fmt: skip
_json = st.recursive(
    _leaf,
    lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(st.text(max_size=8), inner, max_size=5)),
    max_leaves=20,
)  # fmt: skip
_tensor = st.fixed_dictionaries(
    {},
    optional={
        "name": st.one_of(st.just("windows"), _leaf),
        "shape": st.one_of(st.just([1, 8, 3]), st.lists(st.integers(-3, 2**66), max_size=10), _json),
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
    _json.map(lambda value: json.dumps(value).encode()),
    _request.map(lambda value: json.dumps(value).encode()),
    st.integers(1, 100_000).map(lambda depth: b"[" * depth),
    st.integers(1, 30_000).map(lambda depth: b'{"inputs":' * depth),
    st.integers(1, 100_000).map(lambda count: b'{"inputs":[' + b"{}," * count + b"{}]}"),
)
_length = st.one_of(st.integers(-5, 2**70).map(str), st.text("0123456789abcxyz,+- ", max_size=12))


def requests(token: str) -> st.SearchStrategy[bytes]:
    """Wrong bodies with a right head, wrong heads, and bytes that are no HTTP."""

    def with_header(parts: tuple[bytes, str]) -> bytes:
        return post(INFER, token, parts[0], f"Inference-Header-Content-Length: {parts[1]}")

    def with_lines(parts: tuple[str, str, list[str], bytes]) -> bytes:
        method, path, lines, body = parts
        return head(path, token, *lines, method=method) + body

    name = st.text("abcdefgh-_ :\t", min_size=1, max_size=12)
    line = st.tuples(name, st.text(st.characters(codec="latin-1"), max_size=30)).map(
        lambda pair: f"{pair[0]}: {pair[1]}"
    )
    known = st.sampled_from([
        "Transfer-Encoding: chunked", "Content-Length: 5", "Content-Length: -1", "Content-Length: x",
        "Content-Encoding: gzip", "Expect: 100-continue", "Connection: upgrade\r\nUpgrade: websocket", "Host: other",
        "Authorization: Bearer", "Range: bytes=0-", "Inference-Header-Content-Length: 1e3",
    ])  # fmt: skip
    method = st.sampled_from(["GET", "POST", "PUT", "HEAD", "OPTIONS", "TRACE", "CONNECT", "X" * 50])
    path = st.one_of(
        st.sampled_from([INFER, PATH, "/v2", "/metrics", "/%00", "/../../etc/passwd", "*"]),
        st.text("abc/%0123.-_~?&=", max_size=40).map(lambda text: f"/{text}"),
    )
    return st.one_of(
        _body.map(lambda body: post(INFER, token, body)),
        st.tuples(_body, _length).map(with_header),
        st.tuples(method, path, st.lists(st.one_of(line, known), max_size=4), st.binary(max_size=40)).map(with_lines),
        st.binary(min_size=1, max_size=200).map(lambda noise: noise + b"\r\n\r\n"),
    )
