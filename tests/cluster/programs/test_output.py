"""What a program prints: kept whole or by both its ends, and shown as it comes."""

from pathlib import Path

import pytest

from cluster.programs.output import LONGEST_PIECE, SHOWN_BYTES, BoundedLog, ShownOutput
from tests.tables import table

SHOWN = table("cluster/programs/rows", "shown")


def shown(*pieces: bytes, prefix: str = "") -> str:
    text: list[str] = []
    output = ShownOutput(lambda words, end: text.append(words + end), prefix)
    for piece in pieces:
        output.add(piece)
    output.close()
    return "".join(text)


def kept(folder: Path, *pieces: bytes) -> bytes:
    log = BoundedLog(folder / "log", head_bytes=10, tail_bytes=6)
    for piece in pieces:
        log.add(piece)
    log.close()
    assert [path.name for path in folder.iterdir()] == ["log"]
    return (folder / "log").read_bytes()


def test_a_log_keeps_the_end_whatever_the_pieces(tmp_path: Path) -> None:
    whole = bytes(range(65, 65 + 26))
    for size in (1, 3, 7, 26):
        folder = tmp_path / str(size)
        folder.mkdir()
        pieces = [whole[at : at + size] for at in range(0, 26, size)]
        assert kept(folder, *pieces) == b"ABCDEFGHIJ\n... 10 bytes left out ...\nUVWXYZ"


def test_a_log_that_just_fits_leaves_nothing_out(tmp_path: Path) -> None:
    assert kept(tmp_path, b"0123456789", b"abcd") == b"0123456789abcd"


def test_the_next_attempt_appends(tmp_path: Path) -> None:
    assert kept(tmp_path, b"one ") == b"one "
    assert kept(tmp_path, b"two") == b"one two"


@pytest.mark.parametrize("name", SHOWN)
def test_what_is_shown_of_the_pieces(name: str) -> None:
    for pieces, text in SHOWN[name]:
        assert shown(*(piece.encode("latin-1") for piece in pieces)) == text


def test_lines_of_workers_are_whole_and_carry_their_name() -> None:
    assert shown(b"a", b"b\nc", prefix="worker:1: ") == "worker:1: ab\nworker:1: c\n"


def test_a_line_without_end_is_cut_into_pieces() -> None:
    text = shown(b"x" * (3 * LONGEST_PIECE), prefix="w: ")
    assert all(len(line) <= LONGEST_PIECE + 3 for line in text.splitlines())
    assert text.count("x") == 3 * LONGEST_PIECE


def test_a_bounded_display_samples_what_is_too_much() -> None:
    now = [0.0]
    text = list[str]()
    output = ShownOutput(
        lambda words, end: text.append(words + end), bounded=True, clock=lambda: now[0]
    )
    for _ in range(3 * SHOWN_BYTES // 1000):
        output.add(b"x" * 999 + b"\n")
    shown_bytes = sum(map(len, text))
    assert SHOWN_BYTES <= shown_bytes < SHOWN_BYTES + 2000
    now[0] = 60.0
    output.add(b"later\n")
    assert text[-1] == "later\n"
    assert "not shown" in text[-2]
