"""Installing an environment on a node: whole or not there, whatever comes in between."""

import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.release.requirements import SUMS, file_sha256, parse_sums, sums_text
from deploy.release.scripts import Refusal, RefusedError
from deploy.release.wheelhouse import Wheelhouse
from tests.deploy.release.wheels import (
    DEADLINE_SECONDS,
    EXECUTABLE,
    installing,
    names,
    refusal,
    run,
    times,
)
from tests.deploy.tables import Tables
from tests.habits import needs
from tests.ran import ran

rows = Tables(__file__)

ODD = 'o\'clock $(touch pwned) "x" ;&'
"""A folder's name that a shell would like to run."""


def script(
    wheelhouse: Wheelhouse, root: Path, wheels: Path | None = None, python: str = EXECUTABLE
) -> str:
    folder = wheels or wheelhouse.folder
    return installing(wheelhouse, folder, root, python)


@pytest.fixture
def published(wheelhouse: Wheelhouse, tmp_path: Path) -> Path:
    """A copy of the wheelhouse, to be damaged."""
    return Path(shutil.copytree(wheelhouse.folder, tmp_path / "published"))


def test_an_environment_is_installed_once_with_its_bytecode(
    wheelhouse: Wheelhouse, tmp_path: Path
) -> None:
    root = tmp_path / ODD
    lacking = installing(wheelhouse, wheelhouse.folder, root, imports="alpha gamma")
    assert "lacks gamma, which jobs import: `make requirements`" in refusal(lacking)[1]
    text = script(wheelhouse, root)
    done = run(text)
    assert done.changed
    assert wheelhouse.key in done.line
    home = root / "environments" / wheelhouse.key
    asked = "import alpha, beta; print(alpha.TEXT + beta.TEXT, alpha.__cached__)"
    said = subprocess.check_output([home / "bin" / "python", "-c", asked], text=True)
    texts, _, cached = said.strip().partition(" ")
    assert texts == "ab"
    assert Path(cached).exists()
    assert not list(home.glob("bin/uv"))
    assert names(root / "environments") == [wheelhouse.key]
    before = times(root)
    assert not run(text).changed
    assert times(root) == before


def test_one_killed_in_the_middle_is_begun_anew(wheelhouse: Wheelhouse, tmp_path: Path) -> None:
    text = script(wheelhouse, tmp_path)
    process = subprocess.Popen(["sh", "-c", text], start_new_session=True, stdin=subprocess.DEVNULL)
    partial = f".partial-{wheelhouse.key}"
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (tmp_path / "environments" / partial / "installer").exists():
        assert time.monotonic() < deadline
        assert process.poll() is None
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert names(tmp_path / "environments") == [partial]
    assert run(text).changed
    assert names(tmp_path / "environments") == [wheelhouse.key]


def test_too_little_disk_is_said_with_both_numbers_before_anything_is_written(
    wheelhouse: Wheelhouse, tmp_path: Path
) -> None:
    large = replace(wheelhouse, installed_bytes=1 << 50)
    found, line = refusal(script(large, tmp_path))
    assert found is Refusal.NO_SPACE
    assert f"needs {-(-large.needed_bytes // 1024) // 1024} MiB" in line
    assert "MiB are free" in line
    assert names(tmp_path / "environments") == []


@rows("installers")
def test_a_disk_that_fills_up_on_the_way_is_said_and_cleaned(
    wheelhouse: Wheelhouse, tmp_path: Path, installers: float
) -> None:
    """While the wheels are copied, while the installer is unpacked, and while it installs."""
    needs.mount_namespace()
    room_bytes = int(installers * max(wheelhouse.files.values())) + 49152
    text = script(replace(wheelhouse, installed_bytes=-(512 << 20)), tmp_path)
    small = f'mount -t tmpfs -o size={room_bytes} none {tmp_path} && sh -c "$1"; rc=$?; '
    listing = f'ls -A {tmp_path}/environments; exit "$rc"'
    words = ["unshare", "-m", "sh", "-c", small + listing, "sh", text]
    done = ran(*words, code=Refusal.NO_SPACE)
    assert done.stdout == ""
    assert "the disk is full" in done.stderr


@pytest.mark.parametrize("damaged", ["requirements.txt", "uv-*.whl"])
def test_a_damaged_list_or_installer_is_never_run(
    wheelhouse: Wheelhouse, published: Path, tmp_path: Path, damaged: str
) -> None:
    (path,) = published.glob(damaged)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    sums = {name: file_sha256(published / name) for name in parse_sums(wheelhouse.sums())}
    (published / SUMS).write_text(sums_text(sums))  # the server says that all is well
    found, line = refusal(script(wheelhouse, tmp_path / "root", published))
    assert found is Refusal.HASH_MISMATCH
    assert path.name in line


def another_wheel(path: Path) -> None:
    path.write_bytes(path.with_name(path.name.replace("alpha", "beta")).read_bytes())


def link(path: Path) -> None:
    """To a file of the node."""
    secret = path.parent.with_name("secret")
    path.rename(secret)
    path.symlink_to(secret)


@pytest.mark.parametrize(
    ("damage", "refusals", "words"),
    [
        (another_wheel, {Refusal.HASH_MISMATCH, Refusal.INSTALL_FAILED}, ""),
        (Path.unlink, {Refusal.NOT_PUBLISHED}, "alpha"),
        (link, {Refusal.HASH_MISMATCH}, "alpha-1.0-py3-none-any.whl"),
    ],
    ids=["another", "missing", "a link"],
)
def test_a_wheel_that_is_not_the_published_one_is_not_installed(
    wheelhouse: Wheelhouse,
    published: Path,
    tmp_path: Path,
    damage: Callable[[Path], None],
    refusals: set[Refusal],
    words: str,
) -> None:
    (path,) = published.glob("alpha-*.whl")
    damage(path)
    found, line = refusal(script(wheelhouse, tmp_path / "root", published))
    assert found in refusals
    assert words in line
    assert names(tmp_path / "root" / "environments") == []


@rows("late_seconds")
def test_an_installer_that_the_server_swaps_meanwhile_is_never_run(
    wheelhouse: Wheelhouse, published: Path, tmp_path: Path, late_seconds: float
) -> None:
    (installer,) = published.glob("uv-*.whl")
    marker = tmp_path / "PWNED"
    evil = tmp_path / "evil.whl"
    with zipfile.ZipFile(evil, "w") as archive:
        program = f"#!/bin/sh\ntouch {marker}\nexit 1\n"
        archive.writestr("uv-0.13.8.data/scripts/uv", program)
    work = tmp_path / "root" / "environments" / f".partial-{wheelhouse.key}"
    ended = threading.Event()

    def swap() -> None:
        while not work.exists():  # whoever looked at the server's files has done so by then
            if ended.is_set():
                return
        ended.wait(late_seconds)
        os.replace(evil, installer)

    server = threading.Thread(target=swap)
    server.start()
    try:
        with contextlib.suppress(RefusedError):
            run(script(wheelhouse, tmp_path / "root", published))
    finally:
        ended.set()
        server.join()
    assert not evil.exists()
    assert not marker.exists()


@pytest.mark.parametrize(
    ("python", "version", "words"),
    [
        ("/nonexistent/python3", "", "install Python"),
        ("/bin/false", "", "does not start"),
        ("/bin/echo", "", "64 bits, got"),
        (EXECUTABLE, "3.99", "expected Python 3.99"),
    ],
)
def test_a_python_that_will_not_do_is_told(
    wheelhouse: Wheelhouse, tmp_path: Path, python: str, version: str, words: str
) -> None:
    other = replace(wheelhouse, python=version or wheelhouse.python)
    found, line = refusal(script(other, tmp_path, python=python))
    assert found is Refusal.NO_PYTHON
    assert words in line


def test_a_wheelhouse_that_is_not_mounted_is_told(wheelhouse: Wheelhouse, tmp_path: Path) -> None:
    found, line = refusal(script(wheelhouse, tmp_path / "root", tmp_path / "nowhere"))
    assert found is Refusal.NOT_PUBLISHED
    assert "mounted" in line


def test_two_at_once_do_not_mix(wheelhouse: Wheelhouse, tmp_path: Path) -> None:
    (tmp_path / "environments").mkdir()
    words = ["flock", str(tmp_path / ".lock"), "sh", "-c", "echo held; read line"]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        found, line = refusal(script(wheelhouse, tmp_path))
        holder.communicate(b"\n")
    assert found is Refusal.BUSY
    assert "another installation" in line
