"""Strategies of wrong requests: each is bytes for one connection."""

import json

from hypothesis import strategies as st

from tests.recognise.service.exports import windows
from tests.recognise.service.noise import damaged
from tests.recognise.service.raw import exchange, head, post
from tests.recognise.service.running import PATH, Service, as_json

INFER = f"{PATH}/infer"

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
    """Right requests with some places changed, wrong heads, and bytes that are no HTTP.

    The right ones have JSON and binary tensors.
    """
    given = windows(2)
    tensor = {"name": "windows", "shape": [2, 8, 3], "datatype": "FP32"}
    size = {"parameters": {"binary_data_size": len(given.tobytes())}}
    wanted = {"inputs": [tensor | size], "parameters": {"binary_data_output": True}}
    text = json.dumps(wanted).encode()
    length = "Inference-Header-Content-Length: "
    right = (
        post(INFER, token, json.dumps(as_json(given)).encode()),
        post(INFER, token, text + given.tobytes(), f"{length}{len(text)}"),
        head("/v2", token, method="GET"),
    )
    changed = damaged(st.sampled_from(right))

    def written(method: str, path: str, lines: list[str], body: bytes) -> bytes:
        return head(path, token, *lines, method=method) + body

    return st.one_of(
        *[changed] * 3,
        _length.map(lambda wrong: post(INFER, token, text, length + wrong)),
        st.integers(1, 100_000).map(lambda depth: post(INFER, token, b"[" * depth)),
        st.builds(written, _method, _path, st.lists(_line, max_size=4), st.binary(max_size=40)),
        st.binary(min_size=1, max_size=200).map(lambda noise: noise + b"\r\n\r\n"),
    )


def status_of(running: Service, request: bytes) -> str:
    """The status that this request gets; whatever is refused has a reason."""
    try:
        answer = exchange(running.port, request, ends=True)
    except ConnectionResetError:
        return "reset"
    if answer is None:
        return "closed"
    if answer.status not in (100, 200) and not request.startswith(b"HEAD"):
        assert 400 <= answer.status < 600, (request, answer)
        assert answer.status != 500, (request, answer)
        assert answer.error, (request, answer)
    return str(answer.status)
