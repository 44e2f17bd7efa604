import errno
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from core.cage import landlock
from core.cage.landlock import Rights
from tests.habits import needs
from tests.tables import table


@pytest.fixture(autouse=True)
def where_a_cage_is() -> None:
    """Where the kernel can."""
    needs.cage()


PYTHON = (sys.prefix, sys.base_prefix, str(Path(landlock.__file__).parents[2]))
"""What a child needs to go on importing."""

CHILD = """
import errno, json, os, signal, socket, sys
from pathlib import Path
from core.cage.landlock import Rights, enter
given = json.loads(sys.argv[1])
held = enter(Rights(**{name: value and tuple(value) for name, value in given.items()}))
tries = json.loads(sys.argv[2])
def tried(kind, *words):
    try:
        match kind:
            case "read": return Path(words[0]).read_text()
            case "list": return sorted(os.listdir(words[0]))
            case "write": return Path(words[0]).write_text("x")
            case "truncate": return os.truncate(words[0], 0)
            case "unlink": return os.unlink(words[0])
            case "rename": return os.rename(*words)
            case "mkdir": return os.mkdir(words[0])
            case "connect": return socket.create_connection(("127.0.0.1", words[0])).close()
            case "bind": return socket.create_server(("127.0.0.1", words[0])).close()
            case "execute":
                return os.waitpid(os.posix_spawn(words[0], words, {}), 0)[1]
    except OSError as problem:
        return errno.errorcode[problem.errno]
print(json.dumps([held.abi, *(tried(*one) for one in tries)]))
"""


def caged(rights: dict[str, object], *tries: Sequence[object]) -> list[object]:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, json.dumps(rights), json.dumps(tries)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers: list[object] = json.loads(done.stdout)
    assert answers[0] == landlock.abi()
    return answers[1:]


def test_a_caged_process_reads_and_changes_what_it_may_and_nothing_else(tmp_path: Path) -> None:
    folders = {name: tmp_path / name for name in ("inside", "outside", "read")}
    for folder in folders.values():
        folder.mkdir()
        (folder / "file").write_text("words")
    tries = table("core/cage/tables", "tries")
    answers = caged(
        {"read": [*PYTHON, str(folders["read"])], "write": [str(folders["inside"])]},
        *([word.format(**folders, process=os.getpid()) for word in words] for words, _ in tries),
    )
    for answer, (words, possible) in zip(answers, tries, strict=True):
        assert answer in possible, words
    assert (folders["outside"] / "file").read_text() == "words"


def test_a_caged_process_does_not_execute_what_it_may_write(tmp_path: Path) -> None:
    for name in ("read", "write"):
        (tmp_path / name).mkdir()
        shutil.copy("/bin/true", tmp_path / name)
    libraries = landlock.existing("/usr", "/lib", "/lib64")
    answers = caged(
        {
            "read": [*PYTHON, *map(str, libraries), str(tmp_path / "read")],
            "write": [str(tmp_path / "write")],
        },
        ("execute", str(tmp_path / "read/true")),
        ("execute", str(tmp_path / "write/true")),
    )
    assert answers == [0, "EACCES"]


def test_ports_are_those_of_the_rights() -> None:
    needs.cage(landlock.PORTS)
    address = ("127.0.0.1", 0)
    with socket.create_server(address) as open_one, socket.create_server(address) as other:
        allowed = open_one.getsockname()[1]
        refused = other.getsockname()[1]
        answers = caged(
            {"read": PYTHON, "bind": [], "connect": [allowed]},
            ("connect", allowed),
            ("connect", refused),
            ("bind", 0),
        )
    assert answers == [None, "EACCES", "EACCES"]


def test_a_missing_path_is_an_error_unless_the_caller_says_otherwise(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(FileNotFoundError, match="missing"):
        landlock.Cage(Rights(read=(missing,)))
    assert landlock.existing(tmp_path, missing) == (tmp_path,)


@pytest.mark.parametrize(("name", "words"), table("core/cage/tables", "kernels").items())
def test_a_kernel_without_it_says_why(
    monkeypatch: pytest.MonkeyPatch, name: str, words: str
) -> None:
    def refuse(*arguments: object) -> int:
        number = getattr(errno, name)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(landlock, "call", refuse)
    # Not `enter`: this process goes on, and may gain privileges as before.
    with landlock.Cage(Rights(read=("/usr",))) as cage:
        assert cage.coverage.abi == 0
        assert words in cage.coverage.line()


@pytest.mark.parametrize(("version", "gaps"), table("core/cage/tables", "gaps").items())
def test_every_abi_says_what_it_does_not_cover(
    monkeypatch: pytest.MonkeyPatch, version: int, gaps: int
) -> None:
    monkeypatch.setattr(landlock, "call", lambda *arguments: version)
    held = landlock.kernel_coverage()
    assert len(held.open()) == gaps
    assert f"ABI {version}" in held.line()


@pytest.mark.parametrize("version", range(1, landlock.abi() + 1))
def test_what_an_older_kernel_knows_is_all_that_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: int
) -> None:
    # The rules of an older ABI, given to this kernel, which takes them.
    monkeypatch.setattr(landlock, "kernel_coverage", lambda: landlock.Coverage(version))
    handled: list[bytes] = []
    real = landlock.call

    def kept(number: int, *arguments: object) -> int:
        if number == landlock.CREATE_RULESET:
            described = arguments[0]
            assert isinstance(described, bytes)
            handled.append(described)
        return real(number, *arguments)

    monkeypatch.setattr(landlock, "call", kept)
    file = tmp_path / "file"
    file.touch()
    rights = Rights(("/usr", file), (tmp_path, file), ("/dev/null",), (1,), (2,))
    landlock.Cage(rights).close()
    bits = int.from_bytes(handled[0][:8], sys.byteorder)
    assert bits.bit_length() == {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)
    assert len(handled[0]) == 8 * (1 + (version >= 4) + (version >= 6))
