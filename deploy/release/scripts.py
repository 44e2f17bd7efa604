"""The shell scripts of releases: publish, install, unpack, choose, list and remove.

Each is text for a POSIX shell, run as root. Its head assigns the values; its body, a file beside
this module, never contains one. The body is a function that the last line calls, so that a script
that arrives in part does nothing. It ends with one line on stdout, `changed: ...` or `unchanged:
...`, or with an exit code of `Refusal` and one line on stderr. The scripts decide nothing:
which release a rollback takes, and what a node no longer needs, follows here from their lists.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from posixpath import basename, dirname
from typing import TYPE_CHECKING

from core.ground.errors import ClusterError
from deploy.cluster.places import EXTRAS, ROOT
from deploy.common.command_line import filled
from deploy.release.extras import layer
from deploy.release.requirements import KEY_DIGITS, parse_sums, sums_text
from deploy.rooted.commands import PYTHON, file_list, file_program

if TYPE_CHECKING:
    from deploy.release.code_wheel import CodeWheel
    from deploy.release.extras import Lock
    from deploy.release.wheelhouse import Wheelhouse


_KEY = re.compile(rf"[0-9a-f]{{{KEY_DIGITS}}}")
SEARCHED = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The folders of a node's commands."""
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+!-]*")


class Refusal(IntEnum):
    """Why a script refused its work, as its exit code."""

    NO_SPACE = 71
    HASH_MISMATCH = 72
    NO_PYTHON = 73
    NOT_PUBLISHED = 74
    BUSY = 75
    INSTALL_FAILED = 76
    NOT_THERE = 77


class RefusedError(ClusterError):
    """A script's refusal; `refusal` is None for any other exit code, and for several at once."""

    def __init__(self, line: str, return_code: int = 0) -> None:
        super().__init__(line)
        self.return_code = return_code
        self.refusal = Refusal(return_code) if return_code in Refusal.__members__.values() else None


@dataclass(frozen=True)
class Done:
    """The line with which a script reports success."""

    changed: bool
    line: str


def script(body: str, **values: str | int) -> str:
    """The script that runs the file `body` with these shell variables.

    Raises ValueError for a NUL byte.
    """
    return filled("release/frame.sh", body=body, values=values, searched=SEARCHED)


def checked_key(key: str) -> str:
    """`key`, if it is one: root removes paths that contain it. Raises ValueError."""
    if not _KEY.fullmatch(key):
        raise ValueError(f"expected a key of {KEY_DIGITS} hexadecimal digits, got {key!r}")
    return key


def outcome(return_code: int, stdout: str, stderr: str) -> Done:
    """The result in the script's last line. Raises RefusedError."""
    output_lines = stdout.strip().splitlines()
    complained = [line for line in stderr.splitlines() if line.strip()]
    if return_code != 0:
        raise RefusedError(
            complained[-1].strip() if complained else f"exit code {return_code}", return_code
        )
    word, _, line = (output_lines[-1] if output_lines else "").partition(": ")
    if word not in ("changed", "unchanged"):
        raise RefusedError(f"expected `changed: ...` as the last line, got {word!r}", return_code)
    return Done(word == "changed", line)


def missing_files(folder: str, sums: Mapping[str, str]) -> str:
    """Return the script that lists the files of `sums` (SHA-256 by name) that `folder` lacks.

    `read_missing` reads the answer. The caller puts them there, and `finish_folder` checks all
    files again. Wheelhouses and prepared data use it alike. It links files of the same name and
    hash in sibling folders, so that TensorFlow is uploaded once.
    """
    return script("release/missing.sh", **_published(folder, sums))


def read_missing(stdout: str, sizes: Mapping[str, int] | None = None) -> tuple[str, ...]:
    """Names of the missing files.

    Raises RefusedError when their `sizes`, in bytes, exceed the free space.
    """
    entries = [line.partition(" ")[::2] for line in stdout.splitlines()]
    names = tuple(rest for word, rest in entries if word == "missing")
    needed = sum((sizes or {}).get(name, 0) for name in names)
    free = [1024 * int(rest) for word, rest in entries if word == "free" and rest.isdecimal()]
    if free and needed > free[0]:
        raise RefusedError(
            f"the storage server needs {needed >> 20} MiB more, {free[0] >> 20} MiB are free: free"
            " some space there",
            Refusal.NO_SPACE,
        )
    return names


def finish_folder(folder: str, sums: Mapping[str, str]) -> str:
    """Return the script that marks a `folder` complete once it holds each file of `sums`.

    It removes other files.
    """
    return script("release/finish.sh", **_published(folder, sums), names=" ".join(sums))


def prune_folders(parent: str, retained_keys: Iterable[str]) -> str:
    """Return the script that removes folders of `parent` named after keys, but `retained_keys`."""
    if not dirname(parent).startswith("/"):
        raise ValueError(f"expected an absolute path, got {parent!r}")
    return script(
        "release/prune.sh", parent=parent, kept=" ".join(checked_key(key) for key in retained_keys)
    )


def _published(folder: str, sums: Mapping[str, str]) -> dict[str, str]:
    checked_key(basename(folder))
    for name in sums:
        if not _FILE_NAME.fullmatch(name):
            raise ValueError(f"expected a plain file name, got {name!r}")
    return {"folder": folder, "sums": sums_text(sums).rstrip("\n")}


def install_environment(
    wheelhouse: "Wheelhouse",
    wheels: str,
    *,
    root: str = ROOT,
    python: str = PYTHON,
    lock: "Lock | None" = None,
    imports: str = "",
) -> str:
    """Return the script that installs `wheelhouse` from `wheels`, its folder on the node.

    The environment goes to the node's own disk: over NFS it would page 300 MB through one link. A
    Pi has neither a compiler nor python3-venv, so that uv, a wheel of the wheelhouse itself,
    installs it. The script copies the whole wheelhouse first, then hashes and uses the copy: the
    server could change a file between check and use. It works in a folder beside the environments,
    renames that folder at the end, and removes the leftovers of earlier attempts first. A complete
    environment stays as it is. An installation takes minutes on a Pi (1.7 GB, 22,000 files).

    With `lock`, whose wheelhouse it is, the environment is named by that and imports the common
    packages too. An environment that lacks a module of `imports`, names with blanks between them,
    is refused.
    """
    return script(
        "release/install.sh",
        root=root,
        key=_environment_of(wheelhouse, lock),
        wheels=wheels,
        base="" if lock is None else lock.base.site_packages,
        layer="" if lock is None else layer(lock.base.site_packages),
        files=_files_of(wheelhouse),
        imports=imports,
        program=file_program(),
        needed_kib=-(-wheelhouse.needed_bytes // 1024),
        python=python,
        version=wheelhouse.python,
        machine=wheelhouse.machine,
    )


def _environment_of(wheelhouse: "Wheelhouse", lock: "Lock | None") -> str:
    if lock is None:
        return checked_key(wheelhouse.key)
    return checked_key(lock.key)


def _files_of(wheelhouse: "Wheelhouse") -> str:
    sums = parse_sums(wheelhouse.sums())
    return file_list((name, sha256, wheelhouse.files[name]) for name, sha256 in sums.items())


def prune_extras(key: str, retained_environments: int, *, root: str = EXTRAS) -> str:
    """Return the script that removes environments of requirements files.

    The environment `key`, the latest `retained_environments` others, and those that a process holds
    stay.
    """
    return script(
        "release/prune_extras.sh", root=root, key=checked_key(key), most=retained_environments + 1
    )


def unpack_release(code: "CodeWheel", environment: str, *, root: str = ROOT) -> str:
    """Return the script that makes a release of the code wheel on its stdin.

    Its environment is the one of this key. An existing release keeps its files; only its link to
    the environment changes.
    """
    keys = {
        "key": checked_key(code.key),
        "sha256": code.sha256,
        "environment": checked_key(environment),
    }
    return script("release/unpack.sh", root=root, **keys)


def make_current(key: str, *, root: str = ROOT) -> str:
    """Return the script that makes the release `key` current in one step and records the time."""
    return script("release/make_current.sh", root=root, key=checked_key(key))


def list_releases(*, root: str = ROOT) -> str:
    """The script that lists the node's releases for `installed_releases`."""
    return script("release/list.sh", root=root)


def remove(releases: Iterable[str], environments: Iterable[str], *, root: str = ROOT) -> str:
    """The script that removes releases and environments by key, and all unfinished work.

    It refuses the current one.
    """
    folders = [f"releases/{checked_key(key)}" for key in releases]
    folders += [f"environments/{checked_key(key)}" for key in environments]
    return script("release/remove.sh", root=root, folders=" ".join(folders))


KEPT = 3
"""Releases to keep, the current one included."""


@dataclass(frozen=True)
class Release:
    """One release on a node, by key, with its environment.

    `current_since` is Unix time by the node's own clock.
    """

    key: str
    environment: str
    unpacked: int
    current_since: int | None


@dataclass(frozen=True)
class Installed:
    """The releases and environments on a node.

    The `releases` that were current come first, the latest of them first.
    """

    current: str | None
    releases: tuple[Release, ...]
    environments: frozenset[str]


@dataclass(frozen=True)
class Unneeded:
    """Keys of what may be removed."""

    releases: tuple[str, ...]
    environments: tuple[str, ...]


class ListingError(ClusterError):
    """A listing holds a foreign line, so nothing may be concluded from it."""


def installed_releases(listing: str) -> Installed:
    """The output of `list_releases`. Raises ListingError for a foreign line."""
    current = None
    entries: list[tuple[str, str, int]] = []
    environments = set()
    made_current: dict[str, tuple[int, int]] = {}
    for number, line in enumerate(listing.splitlines()):
        match line.split():
            case ["current", key]:
                current = key
            case ["environment", key]:
                environments.add(key)
            case ["release", key, environment, unpacked] if unpacked.isdecimal():
                entries.append((key, environment, int(unpacked)))
            case ["history", seconds, key] if seconds.isdecimal():
                # The line's place counts, not the time: a Pi without a battery may have started in
                # 1970.
                made_current[key] = (number, int(seconds))
            case ["unchanged:", *_]:
                pass
            case _:
                raise ListingError(
                    f"expected a line of a listing of releases, got {line!r}: does a start file of"
                    " the account, such as ~/.bashrc, print it? Let it print in interactive shells"
                    " only"
                )
    entries.sort(
        key=lambda entry: (entry[0] == current, made_current.get(entry[0], (-1,))[0], entry[2]),
        reverse=True,
    )
    releases = tuple(
        Release(key, environment, unpacked, made_current[key][1] if key in made_current else None)
        for key, environment, unpacked in entries
    )
    return Installed(current, releases, frozenset(environments))


def previous(installed: Installed) -> Release | None:
    """The latest release that was current before the current one and is still complete, or None."""
    for release in installed.releases:
        was_current = release.key != installed.current and release.current_since is not None
        if was_current and release.environment in installed.environments:
            return release
    return None


def unneeded(installed: Installed, *, retained_releases: int = KEPT) -> Unneeded:
    """Return releases beyond the newest `retained_releases`, and environments of no other.

    The current release is never among them.
    """
    stay = installed.releases[:retained_releases]
    surplus = tuple(release.key for release in installed.releases[retained_releases:])
    needed = {release.environment for release in stay}
    return Unneeded(surplus, tuple(sorted(installed.environments - needed)))
