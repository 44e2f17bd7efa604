"""What is kept of a node's output, however much comes."""

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.cluster import connector
from deploy.cluster.connection import NodeConnection
from deploy.cluster.connector import Kept, NodeOutputError, NotKeptError
from deploy.common.command_line import shell


@given(st.lists(st.binary(max_size=50)), st.integers(2, 100))
def test_the_beginning_and_the_end_stay(pieces: list[bytes], most_bytes: int) -> None:
    kept, whole = Kept(most_bytes), b"".join(pieces)
    for piece in pieces:
        kept.add(piece)
    half = most_bytes // 2
    if len(whole) <= 2 * half:
        assert (kept.content(), kept.left_out_bytes) == (whole, 0)
        return
    left_out = len(whole) - 2 * half
    assert kept.left_out_bytes == left_out
    assert kept.content() == whole[:half] + f"\n... {left_out} bytes left out\n".encode() + whole[-half:]


def test_a_file_takes_all_or_the_command_is_ended(tmp_path: Path) -> None:
    into = io.BytesIO()
    kept = Kept(10, into)
    kept.add(b"12345")
    kept.add(b"67890")
    assert (into.getvalue(), kept.content()) == (b"1234567890", b"")
    with pytest.raises(NotKeptError, match="at most 10 bytes"):
        kept.add(b"1")


def test_a_node_that_prints_without_end_does_not_fill_this_machine(node: NodeConnection) -> None:
    done = node.run(shell("echo first; head -c 50000000 /dev/zero; echo last"), deadline_seconds=60.0)
    assert done.stdout.startswith(b"first\n")
    assert done.stdout.endswith(b"last\n")
    assert len(done.stdout) < connector.KEPT_BYTES + 100
    assert done.left_out_bytes == 50_000_011 - connector.KEPT_BYTES
    noisy = node.run(shell("head -c 5000000 /dev/zero >&2; echo last >&2; exit 3"), deadline_seconds=60.0)
    assert noisy.return_code == 3
    assert len(noisy.stderr) < connector.KEPT_ERROR_BYTES + 100


def test_what_goes_into_a_file_has_an_end(node: NodeConnection) -> None:
    into = io.BytesIO()
    assert node.run(["echo", "all"], into=into, kept_bytes=10).ok
    assert into.getvalue() == b"all\n"
    with pytest.raises(NodeOutputError, match="expected at most 100 bytes, more came"):
        node.run(shell("cat /dev/zero"), into=io.BytesIO(), kept_bytes=100)


def test_a_line_without_end_is_passed_on_in_pieces(node: NodeConnection) -> None:
    lines: list[str] = []
    assert node.stream(shell("head -c 5000000 /dev/zero | tr '\\0' x"), lines.append) == 0
    # The account's own profile may print lines beside it: pyenv does, when two shells of one account begin at once.
    assert sum(len(line) for line in lines if set(line) == {"x"}) == 5_000_000
    assert max(map(len, lines)) <= connector.LINE_BYTES + connector.READ_BYTES
