import signal

import pytest

from core.logs.lines import Speaker, last_line
from deploy.supervisor.role import last_words


@pytest.mark.parametrize(
    ("line", "return_code", "expected"),
    [
        ("ps:0 127.0.0.1:2222: port 2222 of ps:0 is taken", 20, "port 2222 of ps:0 is taken"),
        ("ps:0: the wheel is missing", 21, "the wheel is missing"),
        ("ps:1: is another role", 1, "ps:1: is another role"),
        (
            "2026-01-02T03:04:05.678Z ERROR ps:0 127.0.0.1:2222: no memory left",
            23,
            "no memory left",
        ),
        ("2026-01-02T03:04:05.678Z INFO ps:0 127.0.0.1:2222: ready after 2.1 s", 1, ""),
        (
            "2026-01-02 03:04:05.678901: I tensorflow/core/x.cc:1] Started server",
            -signal.SIGABRT,
            "",
        ),
        (
            "2026-01-02T03:04:05.678Z ERROR ps:0 127.0.0.1:2222 run 2026-pi: no memory left",
            23,
            "no memory left",
        ),
        (last_line("json", Speaker("ps:0", "127.0.0.1:2222"), "no memory\nleft"), 23, "no memory"),
        (
            "2026-01-02 03:04:05.678901: F tensorflow/core/x.cc:1] Check failed",
            -signal.SIGABRT,
            "tensorflow/core/x.cc:1] Check failed",
        ),
        ("anything at all", -signal.SIGKILL, ""),
        ("", 1, ""),
    ],
)
def test_the_last_line_counts_where_it_says_why(line: str, return_code: int, expected: str) -> None:
    assert last_words(line, "ps:0", "127.0.0.1:2222", return_code) == expected
