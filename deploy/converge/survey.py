"""The facts of every node: the question, a script that root runs there, and its answer."""

import base64
import io
import re
import secrets
import tarfile
import time
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from core.ground.errors import ClusterError
from core.ground.parcel import is_plain_file
from deploy.cluster import places
from deploy.cluster.connector import Connector
from deploy.common.command_line import Inline, filled
from deploy.converge.machine_facts import (
    FileFact,
    MachineFacts,
    MountFact,
    Questions,
    Sections,
    Texts,
    UnitFact,
)
from deploy.converge.subject import words

FACTS_SECONDS = 90.0
"""The time for one question; a Pi 3 that is busy training answers within ten."""
PUBLISHED_SECONDS = 20
"""The time for a shared folder to list what is in it, its mount included."""
SECTION = "@@section "
"""The beginning of a section, where no foreign text is in the answer."""
_NOT_FOUND = 127
"""A shell's exit code for a command that does not exist."""
_ODD = re.compile(r"[^\w./:@+=,-]", re.ASCII)
_MOST_PATHS = 32
_LONGEST = 255
_KIB = 1024
_MOST_KIB = 1 << 50
_MOST_DIGITS = 19
_FIELDS = frozenset(field.name for field in fields(MachineFacts))
_UNIT_KEYS = (
    "Id,LoadState,ActiveState,SubState,UnitFileState,NeedDaemonReload,Result,MainPID,NRestarts,"
    "StatusText,FragmentPath,DropInPaths,"
    "ExecMainStartTimestampMonotonic"
)

_LISTENER = re.compile(r"LISTEN +[0-9]+ +[0-9]+ +\S+:([0-9]{1,5}) +\S+:(?:\*|[0-9]+)(?: |$)")

_UNREADABLE = (ValueError, LookupError, ArithmeticError, RecursionError, tarfile.TarError)


_FILE = re.compile(
    r"(/etc/sudoers(?:\.d/[^\s:]+)?)(?:: | is )(?:world writable|group writable|owned by|bad"
    r" permissions)"
)
_NOT_ALLOWED = ("a password is required", "not in the sudoers", "not allowed", "may not run sudo")


def no_root(user: str, node: str, message: str) -> str:
    """Return what a message says of a refusal: sudo's `message` and the remedy, if it is known."""
    name = user.replace(".", "_")  # sudo ignores files with a dot in their names
    match = _FILE.search(message)
    if match:
        file = match[1]
        return (
            f"sudo ignores {file} because others may write it ({message}): "
            f"`sudo install -m 0440 {file} {file}.new && sudo mv {file}.new {file}` there"
        )
    if "must have a tty" in message:
        return (
            f"sudo wants a terminal ({message}): `echo 'Defaults:{user} !requiretty' | sudo"
            f" tee /etc/sudoers.d/011_{name}-no-tty` there"
        )
    if any(phrase in message for phrase in _NOT_ALLOWED):
        return (
            f"{user} may not use sudo without a password ({message}): `echo '{user} ALL=(ALL)"
            f" NOPASSWD: ALL' | sudo tee /etc/sudoers.d/010_{name}-nopasswd` there"
        )
    return f"{user} gets no root: {message}; `fab deploy ssh --node {node}` looks at it by hand"


def machine_facts(node: Connector, questions: Questions) -> MachineFacts:
    """The facts of one machine. Raises ClusterError, which names sudo where that is missing."""
    node.open()
    asked_seconds = time.time()
    # Drawn for each question: no name of a process or a file there can hold it, and no node knows
    # that of another.
    section = f"@@{secrets.token_hex(16)} "
    script = fact_script(questions, section).encode()
    token = secrets.token_hex(16)
    outcome = node.run(["sh", "-s", token], stdin=script, root=True, deadline_seconds=FACTS_SECONDS)
    answered_seconds = time.time()
    if section not in outcome.text and not outcome.ok:
        message = " ".join(outcome.last_lines)
        if outcome.return_code == _NOT_FOUND and "sudo" in message:
            raise ClusterError(
                f"{node.name}: sudo is missing ({message}): run `su -c 'apt-get install sudo'`"
                " there"
            )
        if "sudo" in message:
            raise ClusterError(f"{node.name}: {no_root(node.account, node.name, message)}")
        if message:
            raise ClusterError(
                f"{node.name}: its facts cannot be read (exit code {outcome.return_code}):"
                f" {message}; {_not_run(node)}"
            )
    uid, _, word = _sections(outcome.text, section).get("shell", "").partition(" ")
    if word != token:
        raise ClusterError(f"{node.name}: {_not_run(node)}")
    if uid != "0":
        raise ClusterError(
            f"{node.name}: expected that sudo runs commands as root, got uid {uid}: look for"
            " `runas_default` in `sudo -l` there"
        )
    return read_facts(outcome.text, asked_seconds, answered_seconds, section)


def _not_run(node: Connector) -> str:
    """Return what to do where the script did not run as it is: with our word, as root."""
    return (
        f"the login shell of {node.account} does not run what fab sends, as after an `exec`, `exit`"
        " or `read` in its ~/.bashrc: put `case $- in *i*) ;; *) return ;; esac` at its top;"
        f" `fab deploy ssh --node {node.name}` looks at it by hand"
    )


def fact_script(questions: Questions, section: str = SECTION) -> str:
    """The one question; each part of the answer begins with `section` and its name.

    One script and few processes: on a Pi 3 each costs some ten milliseconds.
    """
    from deploy.converge.subjects import SUBJECTS  # which a cluster on one machine never asks for

    return filled(
        "converge/ask.sh",
        places=places,
        of=questions,
        subjects=Inline("".join(subject.script for subject in SUBJECTS).rstrip("\n")),
        section=f"\\n{section}%s\\n",
        unit_keys=_UNIT_KEYS,
        published_seconds=PUBLISHED_SECONDS,
    )


def read_facts(
    answer: str, asked_seconds: float, answered_seconds: float, section: str = SECTION
) -> MachineFacts:
    """Read the facts of a node from its answer.

    Its clock was read between the two times of ours (seconds since the epoch).

    Raises ClusterError when the answer is not whole or cannot be read.
    """
    sections = _sections(answer, section)
    if "end" not in sections:
        last = answer.strip().splitlines()[-1:] or [""]
        raise ClusterError(
            f"the node's answer about itself is cut off, after {last[0][:120]!r}: is its disk or"
            " memory full?"
        )
    try:
        return _facts(sections, asked_seconds, answered_seconds)
    except _UNREADABLE as error:
        raise ClusterError(
            f"the node's answer about itself cannot be read ({type(error).__name__}: {error}):"
            " expected Debian's coreutils, procps and tar there"
        ) from error


def _facts(
    sections: Mapping[str, str], asked_seconds: float, answered_seconds: float
) -> MachineFacts:
    from deploy.converge.subjects import SUBJECTS

    facts = {
        name: read(sections[name])
        for readers in (_READERS, *(subject.facts for subject in SUBJECTS))
        for name, read in readers.items()
    }
    more_facts = {name: facts.pop(name) for name in facts.keys() - _FIELDS}
    clock_seconds = float(sections["clock"] or 0.0)
    booted_seconds = float(sections["boot"] or clock_seconds)
    listeners = _listeners(sections["listening"])
    # A process chooses its own name, which may hold a line of its own: names are words alone.
    holders = _listeners(sections["holders"])
    return MachineFacts(
        clock_offset_seconds=clock_seconds - (asked_seconds + answered_seconds) / 2,
        clock_error_seconds=(answered_seconds - asked_seconds) / 2,
        units=_units(sections["units"], sections["processes"], booted_seconds),
        listening={port: _holder(holders.get(port, "")) for port in listeners},
        listening_uids={port: _account(line) for port, line in listeners.items()},
        more=more_facts,
        **facts,
    )


def _sections(answer: str, section: str) -> Sections:
    sections = Sections()
    for part in ("\n" + answer).split(f"\n{section}")[1:]:
        name, _, body = part.partition("\n")
        sections.setdefault(name.strip(), body.rstrip("\n") if body.strip() else "")
    return sections


def _lines(text: str) -> Texts:
    return tuple(line for line in text.splitlines() if line.strip())


def _sizes(text: str) -> dict[str, int]:
    return {line.split()[0]: _bytes(line.split()[1]) for line in _lines(text)}


def _pairs(text: str) -> dict[str, str]:
    """Return what stands before the first blank of each line, and what after it."""
    return {first: rest for first, _, rest in (line.partition(" ") for line in _lines(text))}


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _bytes(kib: str) -> int:
    """Raises ValueError for more than any machine has: no fraction of it could be shown."""
    number = int(kib or 0)
    if number > _MOST_KIB:
        raise ValueError(f"{kib:.30} KiB")
    return number * _KIB


def _number(text: str) -> int:
    if text.strip().isdigit() and len(text) < _MOST_DIGITS:
        return int(text)
    return 0


def _addresses(text: str) -> dict[str, Texts]:
    addresses: dict[str, Texts] = {}
    for line in _lines(text):
        columns = line.split()
        if "inet" in columns:
            address = columns[columns.index("inet") + 1].partition("/")[0]
            addresses[columns[1]] = (*addresses.get(columns[1], ()), address)
    return addresses


def _files(text: str) -> dict[str, FileFact]:
    files: dict[str, FileFact] = {}
    kinds = {tarfile.REGTYPE: "file", tarfile.DIRTYPE: "folder", tarfile.SYMTYPE: "link"}
    content = base64.b64decode(text.encode())
    if not content.strip(b"\0"):
        return files
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
        for member in archive:
            if is_plain_file(member):
                stream = archive.extractfile(member)
            else:
                stream = None
            # tar writes the second name of a file with two names as a link to the first, and a
            # folder with a slash.
            files[member.name.rstrip("/") or "/"] = FileFact(
                kind=kinds.get(member.type, "other"),
                mode=member.mode,
                owner=member.uname or str(member.uid),
                group=member.gname or str(member.gid),
                content=None if stream is None else stream.read(),
                target=member.linkname if member.issym() else None,
                modified_seconds=float(member.mtime),
            )
    return files


def _units(text: str, processes: str, booted_seconds: float) -> dict[str, UnitFact]:
    alive: dict[int, tuple[int, str, str]] = {}
    for line in _lines(processes):
        number, *columns = line.split()
        if columns and number.isdigit():
            size, account, place, *_ = (*columns, "", "")
            alive[int(number)] = (_number(size) * _KIB, account, place)
    units: dict[str, UnitFact] = {}
    for block in text.split("\n\n"):
        values: Mapping[str, str] = dict(
            line.split("=", 1) for line in block.splitlines() if "=" in line
        )
        if "Id" not in values:
            continue
        pid = _number(values.get("MainPID", "0"))
        memory, identity, folder = alive.get(pid, (None, "", ""))
        started = _number(values.get("ExecMainStartTimestampMonotonic", "0"))
        units[values["Id"]] = UnitFact(
            load=values.get("LoadState", ""),
            active=values.get("ActiveState", ""),
            sub=values.get("SubState", ""),
            enabled=values.get("UnitFileState", ""),
            needs_reload=values.get("NeedDaemonReload") == "yes",
            result=values.get("Result", ""),
            pid=pid,
            restarts=_number(values.get("NRestarts", "0")),
            status=values.get("StatusText", ""),
            release=_name(folder) or None,
            started_seconds=booted_seconds + started / 1e6 if pid else None,
            anonymous_memory_bytes=memory,
            files=_paths(f"{values.get('FragmentPath', '')} {values.get('DropInPaths', '')}"),
            identity=identity,
        )
    return units


def _paths(text: str) -> Texts:
    """Return the first of these paths, with `?` for what a shell would not take as it is."""
    return tuple(_ODD.sub("?", word[:_LONGEST]) for word in text.split()[:_MOST_PATHS])


def _mounts(text: str) -> dict[str, MountFact]:
    """Read /proc/self/mountinfo (proc(5)); of several mounts on one point the last one is seen."""
    mounts: dict[str, MountFact] = {}
    for line in _lines(text):
        mount_text, _, origin_text = line.partition(" - ")
        columns = mount_text.split(" ")
        origin = origin_text.split(" ")
        if len(columns) > 5 and len(origin) > 1:
            device, root, point, options = columns[2:6]
            read_only = "ro" in options.split(",")
            mounts[_plain(point)] = MountFact(
                _plain(origin[1]), origin[0], device, _plain(root), read_only
            )
    return mounts


def _plain(word: str) -> str:
    """Return the word without the kernel's escapes of blanks."""
    return re.sub(r"\\([0-7]{3})", lambda escape: chr(int(escape[1], 8)), word)


def _listeners(text: str) -> dict[int, str]:
    """Return the line of each port on which a process listens.

    A name of 15 bytes that a process gave itself holds no such line.
    """
    listeners: dict[int, str] = {}
    for line in _lines(text):
        if match := _LISTENER.match(line):
            listeners.setdefault(int(match[1]), line)
    return listeners


def _account(line: str) -> int:
    """Return the uid of a line of `ss -e`, which leaves root's out."""
    match = re.search(r"\buid:(\d+)", line)
    if match is None:
        return 0
    return int(match[1])


def _holder(line: str) -> str:
    match = re.search(r'\(\("([^"]*)",pid=(\d+)', line)
    if match is None:
        return "a process"
    return f"process {match[2]} ({re.sub(r'[^ -~]', '?', match[1])})"


def _optional(text: str) -> str | None:
    return text.strip() or None


def _celsius(text: str) -> float | None:
    if text.isdigit():
        return _number(text) / 1000
    return None


def _throttled(text: str) -> int | None:
    bits = text.partition("=")[2].strip()
    if bits:
        return int(bits, 16)
    return None


_READERS: Mapping[str, Callable[[str], Any]] = {
    **dict.fromkeys(("os_id", "os_version", "machine", "kernel", "model"), str.strip),
    **dict.fromkeys(("python", "cmdline_path", "current"), _optional),
    **dict.fromkeys(("systemd", "bits", "python_bits"), _number),
    **dict.fromkeys(("memory_bytes", "available_bytes"), _bytes),
    **dict.fromkeys(("disk_free_bytes", "leftover_bytes"), _sizes),
    **dict.fromkeys(("environments", "data", "published", "exports"), _lines),
    **dict.fromkeys(("real_paths", "release_environments"), _pairs),
    "cores": lambda text: max(1, _number(text)),
    "controllers": words,
    "addresses": _addresses,
    "files": _files,
    "mounts": _mounts,
    "fstab": lambda text: tuple(text.splitlines()),
    "shared_answers": lambda text: text.strip() != "no",
    "temperature_celsius": _celsius,
    "throttled": _throttled,
}
"""The reader of each fact that belongs to no subject, by the name of its section."""
