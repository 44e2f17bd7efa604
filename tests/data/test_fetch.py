"""A published file over HTTP, from a server here: interruptions, other versions, wrong hashes, lengths, redirects."""

import fcntl
import hashlib
import io
import os
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO, Any, cast

import pytest

from cluster.data.fetch import __main__ as command
from cluster.data.fetch.download import NotFetchedError, Wanted, download, write_whole
from cluster.data.fetch.sets import SETS, PublishedSet
from cluster.data.fetch.unpack import unpack
from cluster.data.recordings import silent
from cluster.errors import DataError

CONTENT = bytes(range(256)) * 20_000
HASH = hashlib.sha256(CONTENT).hexdigest()


@dataclass
class Server:
    """What it answers, and what it was asked."""

    url: str = ""
    content: bytes = CONTENT
    tag: str = '"one"'
    ranges: bool = True
    length: bool = True
    breaks_after: list[int] = field(default_factory=list)
    """Bytes of each answer after which the connection is cut, the first ones first."""
    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    """Answers without a body that come before all others."""
    asked: list[dict[str, str]] = field(default_factory=list)


def handler_of(server: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            server.asked.append(dict(self.headers))
            if server.answers:
                status, headers = server.answers.pop(0)
                self.send_response(status)
                for name, value in {"Content-Length": "0", **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                return
            begin, asked = 0, self.headers.get("Range", "")
            if server.ranges and asked and self.headers.get("If-Range") == server.tag:
                begin = int(asked.removeprefix("bytes=").rstrip("-"))
            self.send_response(206 if begin else 200)
            if begin:
                self.send_header("Content-Range", f"bytes {begin}-{len(server.content) - 1}/{len(server.content)}")
            if server.tag:
                self.send_header("ETag", server.tag)
            if server.length:
                self.send_header("Content-Length", str(len(server.content) - begin))
            self.end_headers()
            body = server.content[begin:]
            if server.breaks_after:
                body = body[: server.breaks_after.pop(0)]
            self.wfile.write(body)

    return Handler


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()
    with serving(handler_of(state)) as port:
        state.url = f"http://127.0.0.1:{port}/set.zip"
        yield state


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[int]:
    http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield http.server_address[1]
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


def wanted(server: Server, **changes: Any) -> Wanted:
    return Wanted(**{"url": server.url, "sha256": HASH, "size": None, "most_bytes": 2 * len(CONTENT), **changes})


def fetched(server: Server, path: Path, **changes: Any) -> tuple[str, list[float]]:
    pauses: list[float] = []
    return download(wanted(server, **changes), path, silent, pauses.append), pauses


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_fetched_whole(server: Server, tmp_path: Path) -> None:
    path, told = tmp_path / "deep" / "set.zip", []
    found = download(wanted(server, size=len(CONTENT)), path, lambda *one: told.append(one))
    assert found == HASH
    assert path.read_bytes() == CONTENT
    assert ("fetching", len(CONTENT), len(CONTENT)) in told
    assert leftovers(path.parent) == ["set.zip"]
    assert server.asked[0]["Accept-Encoding"] == "identity"


def test_a_broken_connection_is_continued_where_it_broke(server: Server, tmp_path: Path) -> None:
    server.breaks_after = [1_000_000, 1_500_000]
    found, pauses = fetched(server, tmp_path / "set.zip")
    assert found == HASH
    assert [asked.get("Range") for asked in server.asked] == [None, "bytes=1000000-", "bytes=2500000-"]
    assert server.asked[1]["If-Range"] == '"one"'
    assert pauses == [1.0, 1.0], "one that brought some bytes is no failure in a row"


def test_a_later_call_goes_on(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "set.zip"
    server.breaks_after, server.answers = [1_000_000], []

    def gives_up(seconds: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download(wanted(server), path, silent, gives_up)
    assert leftovers(tmp_path) == [".set.zip.part", ".set.zip.part.json"]
    assert fetched(server, path)[0] == HASH
    assert server.asked[1]["Range"] == "bytes=1000000-"
    assert leftovers(tmp_path) == ["set.zip"]


@pytest.mark.parametrize("change", ["another version", "no ranges", "no version"])
def test_what_cannot_be_continued_is_fetched_from_the_beginning(server: Server, tmp_path: Path, change: str) -> None:
    path = tmp_path / "set.zip"
    (tmp_path / ".set.zip.part").write_bytes(b"x" * 1000)
    (tmp_path / ".set.zip.part.json").write_text(f'{{"url": "{server.url}", "version": "\\"one\\""}}')
    if change == "another version":
        server.tag = '"two"'
    elif change == "no ranges":
        server.ranges = False
    else:
        (tmp_path / ".set.zip.part.json").write_text("{")
    assert fetched(server, path)[0] == HASH
    assert ("Range" in server.asked[0]) == (change != "no version")


def test_a_range_beyond_the_end_begins_anew(server: Server, tmp_path: Path) -> None:
    (tmp_path / ".set.zip.part").write_bytes(CONTENT + b"more")
    (tmp_path / ".set.zip.part.json").write_text(f'{{"url": "{server.url}", "version": "\\"one\\""}}')
    server.answers = [(416, {})]
    assert fetched(server, tmp_path / "set.zip")[0] == HASH


def test_another_hash_is_refused_and_nothing_kept(server: Server, tmp_path: Path) -> None:
    server.content = CONTENT[::-1]
    with pytest.raises(DataError, match=f"expected SHA-256 {HASH}, got [0-9a-f]{{64}}: .* nothing is kept"):
        fetched(server, tmp_path / "set.zip")
    assert leftovers(tmp_path) == []


def test_another_length_is_refused_before_it_is_fetched(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"expected 7 bytes, the server has {len(CONTENT)}"):
        fetched(server, tmp_path / "set.zip", size=7)
    with pytest.raises(DataError, match=r"expected at most 1000 bytes, the server has"):
        fetched(server, tmp_path / "set.zip", most_bytes=1000)


def test_a_stream_without_an_end_is_cut(server: Server, tmp_path: Path) -> None:
    server.length = False
    with pytest.raises(DataError, match="expected at most 1000 bytes, got more"):
        fetched(server, tmp_path / "set.zip", most_bytes=1000)
    assert leftovers(tmp_path) == []
    assert fetched(server, tmp_path / "set.zip")[0] == HASH, "a length is not needed where the hash is known"


def test_a_redirect_to_another_place_is_not_followed(server: Server, tmp_path: Path) -> None:
    server.answers = [(302, {"Location": "http://127.0.0.2:9/set.zip"})]
    with pytest.raises(DataError, match=r"sends us to http://127.0.0.2:9, which is another place"):
        fetched(server, tmp_path / "set.zip")
    server.answers = [(302, {"Location": "/elsewhere.zip"})]
    assert fetched(server, tmp_path / "set.zip")[0] == HASH


@pytest.mark.parametrize(("status", "attempts"), [(404, 1), (403, 1), (503, 5), (429, 5)])
def test_what_the_server_refuses(server: Server, tmp_path: Path, status: int, attempts: int) -> None:
    server.answers = [(status, {})] * 10
    with pytest.raises(NotFetchedError, match=rf"cannot be fetched \(the server answers {status}.*put it at"):
        fetched(server, tmp_path / "set.zip")
    assert len(server.asked) == attempts
    assert leftovers(tmp_path) == []


def test_without_a_network_it_says_what_to_do_in_one_line(tmp_path: Path, closed: int) -> None:
    nobody = Wanted(f"http://127.0.0.1:{closed}/set.zip", None, None, 1000)
    pauses: list[float] = []
    with pytest.raises(NotFetchedError) as caught:
        download(nobody, tmp_path / "set.zip", silent, pauses.append)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(f"put it at {tmp_path / 'set.zip'}")
    assert pauses == [1.0, 2.0, 4.0, 8.0]
    assert caught.value.exit_code == 1


@pytest.fixture
def closed() -> int:
    """A port that nobody answers at."""
    with serving(BaseHTTPRequestHandler) as port:
        return port


def test_plain_http_and_files_are_refused(tmp_path: Path) -> None:
    for url in ("http://archive.example/set.zip", "file:///etc/passwd", "ftp://127.0.0.1/x"):
        with pytest.raises(DataError, match="expected an https URL"):
            download(Wanted(url, None, None, 1000), tmp_path / "set.zip", silent)


def test_one_process_fetches_a_file_at_a_time(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "set.zip"

    def meanwhile(*_: Any) -> None:
        with pytest.raises(DataError, match="another fetch writes it now"):
            download(wanted(server), path, silent)

    assert download(wanted(server), path, meanwhile) == HASH


def test_a_link_in_the_place_of_the_part_is_not_followed(server: Server, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("kept")
    os.symlink(victim, tmp_path / ".set.zip.part")
    with pytest.raises(DataError, match="cannot be written"):
        fetched(server, tmp_path / "set.zip")
    assert victim.read_text() == "kept"


def test_a_part_that_has_got_its_name_meanwhile_is_left_alone(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part, lock = tmp_path / ".set.zip.part", fcntl.flock
    part.write_bytes(CONTENT)

    def after_the_other_has_ended(stream: Any, how: int) -> None:
        part.rename(tmp_path / "set.zip")
        lock(stream, how)

    monkeypatch.setattr(fcntl, "flock", after_the_other_has_ended)
    with pytest.raises(DataError, match="another fetch writes it now"):
        fetched(server, tmp_path / "set.zip")
    assert (tmp_path / "set.zip").read_bytes() == CONTENT
    assert server.asked == []


def test_a_file_that_takes_a_part_gets_the_rest() -> None:
    taken = bytearray()

    class NearlyFull(io.RawIOBase):
        def write(self, content: Any) -> int:
            taken.extend(content[:7])
            return min(7, len(content))

    write_whole(cast(IO[bytes], NearlyFull()), CONTENT[:1000])
    assert taken == CONTENT[:1000]


def archive(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in files.items():
            made.writestr(name, content)
    return path


def test_one_file_is_taken_out_of_an_archive(tmp_path: Path) -> None:
    made = archive(tmp_path / "a.zip", {"exp/table.csv": b"1,2\n", "__MACOSX/exp/table.csv": b"x", "exp/other": b"y"})
    unpack(made, "table.csv", tmp_path / "table.csv", 100, silent)
    assert (tmp_path / "table.csv").read_bytes() == b"1,2\n"
    assert leftovers(tmp_path) == ["a.zip", "table.csv"]


@pytest.mark.parametrize(
    ("files", "damage", "words"),
    [
        ({"exp/other": b"y"}, None, "expected one table.csv, got 0"),
        ({"a/table.csv": b"1", "b/table.csv": b"2"}, None, "expected one table.csv, got 2"),
        ({"table.csv": b"1" * 101}, None, "unpacks to 101 bytes, more than 100; do not trust"),
        ({"../table.csv": b"1"}, None, "names a file outside the archive"),
        ({"table.csv": b"1" * 90}, lambda raw: raw[:20], "not a complete zip archive"),
        ({"table.csv": bytes(range(90))}, lambda raw: raw[:45] + b"\0\0\0\0" + raw[49:], "cannot be unpacked"),
    ],
)
def test_a_wrong_archive_leaves_nothing(
    tmp_path: Path, files: dict[str, bytes], damage: Callable[[bytes], bytes] | None, words: str
) -> None:
    made = archive(tmp_path / "a.zip", files)
    if damage is not None:
        made.write_bytes(damage(made.read_bytes()))
    with pytest.raises(DataError, match=words):
        unpack(made, "table.csv", tmp_path / "table.csv", 100, silent)
    assert leftovers(tmp_path) == ["a.zip"]


def test_the_command_pins_what_it_fetched(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    inner = archive(tmp_path / "a.zip", {"exp/table.csv": b"1,2\n"}).read_bytes()
    server.content = inner
    one = PublishedSet("mine", server.url, "table.csv", 10_000, member="table.csv", most_unpacked=100)
    monkeypatch.setitem(SETS, "mine", one)
    folder = tmp_path / "out"
    assert command.main(["mine", "--out", str(folder), "--quiet"]) == 0
    assert "no hash is known: this one is pinned from now on" in capsys.readouterr().out
    assert leftovers(folder) == ["table.csv", "table.csv.sha256"]
    assert command.main(["mine", "--out", str(folder)]) == 0
    assert "is there already" in capsys.readouterr().out
    assert len(server.asked) == 1
    (folder / "table.csv").write_text("changed")
    assert command.main(["mine", "--out", str(folder)]) == 2
    assert "remove it to fetch it again" in capsys.readouterr().err
    assert command.main(["mine", "--out", str(tmp_path / "b"), "--sha256", "a" * 64]) == 2
    assert f"got {hashlib.sha256(inner).hexdigest()}" in capsys.readouterr().err


def test_a_fetch_that_was_killed_while_it_unpacked_goes_on(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server.content = archive(tmp_path / "a.zip", {"exp/table.csv": b"1,2\n"}).read_bytes()
    found = hashlib.sha256(server.content).hexdigest()
    one = PublishedSet("mine", server.url, "table.csv", 10_000, sha256=found, member="table.csv", most_unpacked=100)
    monkeypatch.setitem(SETS, "mine", one)
    words = ["mine", "--out", str(tmp_path / "out"), "--quiet"]
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.zip").write_bytes(server.content)
    (tmp_path / "out" / ".table.csv.part").write_bytes(b"a longer part of some other try")
    assert command.main(words) == 0
    assert (tmp_path / "out" / "table.csv").read_bytes() == b"1,2\n"
    assert leftovers(tmp_path / "out") == ["table.csv", "table.csv.sha256"]
    (tmp_path / "out" / "mine.zip").write_bytes(server.content)
    (tmp_path / "out" / "table.csv.sha256").unlink()
    assert command.main(words) == 0
    assert "the archive that an interrupted fetch left is removed" in capsys.readouterr().out
    assert leftovers(tmp_path / "out") == ["table.csv", "table.csv.sha256"]
    assert server.asked == []


def test_a_file_in_the_place_of_the_archive_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one = PublishedSet("mine", "https://127.0.0.1/", "table.csv", 10, sha256=HASH, member="table.csv")
    monkeypatch.setitem(SETS, "mine", one)
    (tmp_path / "mine.zip").write_text("my own")
    assert command.main(["mine", "--out", str(tmp_path), "--quiet"]) == 2
    assert "mine.zip: is there, with SHA-256" in capsys.readouterr().err
    assert (tmp_path / "mine.zip").read_text() == "my own"


def test_the_command_refuses_what_is_no_set_or_no_hash(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["wisdm"]) == 2
    assert "expected hapt, uci-har, hhar" in capsys.readouterr().err
    assert command.main(["hapt", "--sha256", "abc"]) == 2
    assert "expected 64 hexadecimal digits" in capsys.readouterr().err


def test_every_pin_is_a_hash_of_an_https_url_with_a_bound() -> None:
    for name, one in SETS.items():
        assert one.name == name
        assert one.url.startswith("https://archive.ics.uci.edu/")
        assert one.sha256 is not None
        assert len(bytes.fromhex(one.sha256)) == 32
        assert one.size is None or one.size < one.most_bytes
