"""A published file over HTTP, from a server here.

Interruptions, other versions, wrong hashes, lengths, redirects.
"""

import fcntl
import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from core.data.fetch import SETS
from core.data.fetch import __main__ as command
from core.data.fetch.download import NotFetchedError, bring, write_whole
from core.data.recordings import silent
from tests.core.data.desk import refused, says
from tests.core.data.file_server import CONTENT, HASH, Server, serving
from tests.tables import table

PART = ".set.zip.part"
WHOLE = ["set.zip", "set.zip.sha256"]


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()
    with serving(state):
        yield state


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the file goes."""
    return tmp_path / "out" / "set.zip"


def leftovers(path: Path) -> list[str]:
    return sorted(found.name for found in path.parent.glob("*"))


def interrupted(path: Path, content: bytes) -> None:
    """Leave what an interrupted fetch has written."""
    path.parent.mkdir()
    (path.parent / PART).write_bytes(content)


def test_a_file_is_fetched_whole(server: Server, path: Path) -> None:
    told = []
    bring(server.wanted(size=len(CONTENT)), path, lambda *one: told.append(one))
    assert path.read_bytes() == CONTENT
    assert path.with_name("set.zip.sha256").read_text() == f"{HASH}  set.zip\n"
    assert ("fetching", len(CONTENT), len(CONTENT)) in told
    assert leftovers(path) == WHOLE
    assert server.asked[0]["Accept-Encoding"] == "identity"


def test_a_broken_connection_is_continued_where_it_broke(server: Server, path: Path) -> None:
    server.breaks_after = [1_000_000, 1_500_000]
    # One that brought some bytes is no failure in a row.
    assert server.bring(path) == [1.0, 1.0]
    ranges = [asked.get("Range") for asked in server.asked]
    assert ranges == [None, "bytes=1000000-", "bytes=2500000-"]


def test_a_later_call_goes_on(server: Server, path: Path) -> None:
    server.breaks_after = [1_000_000]

    def gives_up(seconds: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bring(server.wanted(), path, silent, gives_up)
    assert leftovers(path) == [PART]
    server.bring(path)
    assert server.asked[1]["Range"] == "bytes=1000000-"
    assert leftovers(path) == WHOLE


@pytest.mark.parametrize(
    ("came", "server_has", "ranges"),
    [
        (b"x" * 1000, {}, ["bytes=1000-", None]),
        (b"x" * 1000, {"ranges": False}, ["bytes=1000-"]),
        (CONTENT + b"more", {"answers": [(416, {})]}, ["bytes=5120004-", None]),
        (CONTENT, {}, []),
        (
            b"x" * 9,
            {"answers": [(206, {"Content-Range": "bytes 7-9/9"})]},
            ["bytes=9-"] * 2 + [None],
        ),
    ],
)
def test_what_cannot_be_continued_is_fetched_from_the_beginning(
    server: Server, path: Path, came: bytes, server_has: dict[str, Any], ranges: list[str | None]
) -> None:
    interrupted(path, came)
    vars(server).update(server_has)
    server.bring(path)
    assert [asked.get("Range") for asked in server.asked] == ranges
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize("row", table("core/data/tables", "not fetched"))
def test_what_is_not_what_is_wanted_is_refused_and_nothing_kept(
    server: Server, path: Path, row: dict[str, Any]
) -> None:
    vars(server).update(row.get("server", {}))
    with refused(row["says"]):
        server.bring(path, **row.get("wanted", {}))
    assert not row.get("came") or leftovers(path) == []


@pytest.mark.parametrize(
    "server_has", [{"length": False}, {"answers": [(302, {"Location": "/elsewhere.zip"})]}]
)
def test_no_length_and_a_redirect_to_the_same_place_do_not_matter(
    server: Server, path: Path, server_has: dict[str, Any]
) -> None:
    vars(server).update(server_has)
    assert server.bring(path) == []


@pytest.mark.parametrize(("status", "attempts"), [(404, 1), (403, 1), (503, 5), (429, 5)])
def test_what_the_server_refuses(server: Server, path: Path, status: int, attempts: int) -> None:
    server.answers = [(status, {})] * 10
    said = rf"cannot be fetched \(the server answers {status}.*put it at {path}"
    with pytest.raises(NotFetchedError, match=said):
        server.bring(path)
    assert len(server.asked) == attempts
    assert leftovers(path) == []


def test_without_a_network_it_says_what_to_do_in_one_line(path: Path) -> None:
    nobody = Server()
    with serving(nobody):
        pass
    pauses: list[float] = []
    with pytest.raises(NotFetchedError) as caught:
        bring(nobody.wanted(), path, silent, pauses.append)
    says(str(caught.value), f"put it at {path}")
    assert pauses == [1.0, 2.0, 4.0, 8.0]
    assert caught.value.exit_code == 1


@pytest.mark.parametrize(
    "url", ["http://archive.example/set.zip", "file:///etc/passwd", "ftp://127.0.0.1/x"]
)
def test_plain_http_and_files_are_refused(path: Path, url: str) -> None:
    with refused("expected an https URL"):
        bring(Server(url).wanted(), path, silent)
    assert leftovers(path) == []


@pytest.mark.parametrize("content", [b"", CONTENT[:7]])
def test_a_refusal_leaves_what_came_before_and_no_empty_part(
    server: Server, path: Path, content: bytes
) -> None:
    interrupted(path, content)
    with refused("expected 3 bytes"):
        server.bring(path, size=3)
    assert leftovers(path) == ([PART] if content else [])


def test_one_process_fetches_a_file_at_a_time(server: Server, path: Path) -> None:
    def meanwhile(*_: Any) -> None:
        with refused("another fetch writes it now"):
            server.bring(path)

    bring(server.wanted(), path, meanwhile)
    assert leftovers(path) == WHOLE


def test_a_link_in_the_place_of_the_part_is_not_followed(server: Server, path: Path) -> None:
    path.parent.mkdir()
    victim = path.parent / "victim"
    victim.write_text("kept")
    os.symlink(victim, path.parent / PART)
    with refused("cannot be written"):
        server.bring(path)
    assert victim.read_text() == "kept"


def test_a_part_that_has_got_its_name_meanwhile_is_left_alone(
    server: Server, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(path, CONTENT)
    lock = fcntl.flock

    def after_the_other_has_ended(stream: Any, how: int) -> None:
        (path.parent / PART).rename(path)
        lock(stream, how)

    monkeypatch.setattr(fcntl, "flock", after_the_other_has_ended)
    with refused("another fetch writes it now"):
        server.bring(path)
    assert path.read_bytes() == CONTENT
    assert server.asked == []


def test_a_file_that_takes_a_part_gets_the_rest() -> None:
    taken = bytearray()

    class NearlyFull(io.RawIOBase):
        name = "part"

        def write(self, content: Any) -> int:
            taken.extend(content[:7])
            return min(7, len(content))

    write_whole(cast(io.FileIO, NearlyFull()), CONTENT[:1000])
    assert taken == CONTENT[:1000]


Fetch = Callable[..., tuple[int, str]]


@pytest.fixture
def fetch(
    server: Server,
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Fetch:
    """Runs the command for a set `mine`: its exit code, and what it says or what went wrong."""

    def run(*words: str) -> tuple[int, str]:
        monkeypatch.setitem(SETS, "mine", server.wanted())
        code = command.main(["mine", "--out", str(path.parent), "--quiet", *words])
        said = capsys.readouterr()
        return code, said.err.strip() if code else said.out

    return run


def test_the_command_keeps_the_hash_of_what_it_fetched(
    server: Server, path: Path, fetch: Fetch
) -> None:
    code, said = fetch()
    assert code == 0
    assert f"SHA-256 {HASH}, as pinned" in said
    assert leftovers(path) == WHOLE
    code, said = fetch()
    assert code == 0
    assert "is there already" in said
    assert len(server.asked) == 1
    path.write_text("changed")
    code, said = fetch()
    assert code == 2
    assert "remove it to fetch it again" in said
    path.unlink()
    code, said = fetch("--sha256", "a" * 64)
    assert code == 2
    assert f"got {HASH}" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["wisdm"], "expected hapt, uci-har, hhar"),
        (["hapt", "--sha256", "abc"], "expected 64 hexadecimal digits"),
    ],
)
def test_the_command_refuses_what_is_no_set_or_no_hash(
    capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert command.main(words) == 2
    assert said in capsys.readouterr().err


def test_every_pin_is_a_hash_of_an_https_url_with_a_bound() -> None:
    for name, one in SETS.items():
        assert one.name == name
        assert one.url.startswith("https://archive.ics.uci.edu/")
        assert len(bytes.fromhex(one.sha256)) == 32
        assert one.size is None or one.size < one.most_bytes
