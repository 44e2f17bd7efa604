"""Files, mounts, exports and units of a node as the inventory wants them. Pure."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

from deploy.cluster.places import DEPLOY_STATE
from deploy.common.command_line import quoted
from deploy.converge.change import Change, Shell, Step, Upload, text_diff
from deploy.converge.machine_facts import MachineFacts, MountFact, UnitFact
from deploy.render import units
from deploy.rooted.commands import make_folder, make_point, remove

RELOAD = Shell("reload systemd", "systemctl daemon-reload")
MONITOR_READ_MARK = f"{units.MONITOR_FOLDER}/read"
"""The SHA-256 of the texts that a running Prometheus has read."""
MONITOR_HINT = f"`journalctl -u {units.MONITOR_UNIT}` there says more"
SERVICE_HINT = f"`journalctl -u {units.SERVICE_UNIT}` there says more"


def written(
    kind: str,
    path: str,
    content: bytes,
    facts: MachineFacts,
    detail: str,
    mode: int = 0o644,
    then: Iterable[Shell] = (),
) -> Change:
    """The change that writes a file of root's, whatever the node has; `then` is run afterwards."""
    now = facts.files.get(path)
    folder = path.rpartition("/")[0]
    steps: tuple[Step, ...] = (
        Shell(f"make {folder}", quoted(*make_folder(folder))),
        Upload(f"write {path}", content, path, mode),
        *then,
    )
    diff = text_diff(path, None if now is None else now.content, content)
    return Change(kind, path, "create" if now is None else "change", detail, steps, diff)


def all_written(kind: str, texts: Iterable[tuple[str, str]], facts: MachineFacts, detail: str) -> list[Change]:
    """The changes that write those of these files, by path and text, that the node has not."""
    return [
        written(kind, path, text.encode(), facts, detail)
        for path, text in texts
        if (now := facts.files.get(path)) is None or (now.content, now.mode) != (text.encode(), 0o644)
    ]


@dataclass(frozen=True)
class Folder:
    """A folder with its owner and mode; what is in it stays."""

    path: str
    mode: int = 0o755
    owner: str = "root"

    def changes(self, facts: MachineFacts) -> tuple[Change, ...]:
        """Make it, or set owner and mode: never through a link of any account."""
        now = facts.files.get(self.path)
        if now is not None and (now.kind, now.mode, now.owner) == ("folder", self.mode, self.owner):
            return ()
        script = quoted(*make_folder(self.path, self.mode, self.owner))
        action = "create" if now is None else "change"
        detail = f"mode {self.mode:04o}, owner {self.owner}"
        return (Change("file", self.path, action, detail, (Shell(f"make {self.path}", script),)),)


@dataclass(frozen=True)
class File:
    """A file with exactly this content; `then` is run when it was written."""

    path: str
    content: bytes
    mode: int = 0o644
    then: tuple[Shell, ...] = ()

    def changes(self, facts: MachineFacts) -> tuple[Change, ...]:
        """Write it unless content, owner and mode are as wanted."""
        now = facts.files.get(self.path)
        if now is not None and (now.content, now.mode, now.owner) == (self.content, self.mode, "root"):
            return ()
        detail = f"{len(self.content)} bytes, mode {self.mode:04o}"
        return (written("file", self.path, self.content, facts, detail, self.mode, self.then),)


@dataclass(frozen=True)
class Absent:
    """A path of ours that must not be there any more; `before` is run first."""

    path: str
    before: tuple[Shell, ...] = ()
    then: tuple[Shell, ...] = ()

    def changes(self, facts: MachineFacts) -> tuple[Change, ...]:
        """Remove it."""
        if self.path not in facts.files:
            return ()
        steps = (*self.before, Shell(f"remove {self.path}", quoted(*remove(self.path))), *self.then)
        return (Change("file", self.path, "remove", "not in the inventory any more", steps),)


@dataclass(frozen=True)
class FstabLines:
    """Our lines of /etc/fstab, between two marks; the others stay as they are. The mounts themselves are `Mounted`."""

    lines: tuple[str, ...]

    def changes(self, facts: MachineFacts) -> tuple[Change, ...]:
        """Replace our part."""
        wanted = (*([FSTAB_BEGIN, *self.lines, FSTAB_END] if self.lines else []),)
        if own_fstab_lines(facts.fstab) == wanted:
            return ()
        text = "\n".join(wanted) + "\n" if wanted else ""
        script = (
            f"awk {quoted(WITHOUT_OURS)} /etc/fstab >/etc/fstab.pscluster 2>/dev/null; "
            f"printf %s {quoted(text)} >>/etc/fstab.pscluster && chmod 644 /etc/fstab.pscluster && "
            "mv -f /etc/fstab.pscluster /etc/fstab && systemctl daemon-reload"
        )
        diff = text_diff("/etc/fstab", "\n".join(own_fstab_lines(facts.fstab)).encode(), text.encode())
        detail = f"{len(self.lines)} lines"
        return (Change("mount", "/etc/fstab", "change", detail, (Shell("write /etc/fstab", script),), diff),)


FSTAB_BEGIN = "# pscluster: begin"
FSTAB_END = "# pscluster: end"

WITHOUT_OURS = (
    f'$0 == "{FSTAB_BEGIN}" {{ printf "%s", lines; held = 1; lines = ""; next }} '
    f'$0 == "{FSTAB_END}" && held {{ held = 0; lines = ""; next }} '
    'held { lines = lines $0 "\\n"; next } { print } END { printf "%s", lines }'
)
"""For awk. Where a person removed the second mark, what follows the first is theirs as well as ours, and stays."""


def own_fstab_lines(lines: tuple[str, ...]) -> tuple[str, ...]:
    """The part of fstab between our marks, marks included; empty without it."""
    if FSTAB_BEGIN not in lines:
        return ()
    begin = lines.index(FSTAB_BEGIN)
    end = lines.index(FSTAB_END, begin) if FSTAB_END in lines[begin:] else len(lines) - 1
    return lines[begin : end + 1]


@dataclass(frozen=True)
class NotedFolders:
    """Which of the folders that a deployment makes were not there before it, for `reset`."""

    folders: tuple[str, ...]

    def changes(self, facts: MachineFacts) -> tuple[Change, ...]:
        """Note those that are missing now, unless these very folders were looked at before."""
        path = f"{DEPLOY_STATE}/folders"
        mark = f"# {' '.join(self.folders)}"
        now = facts.files.get(path)
        if now is not None and now.content is not None and mark in now.content.decode().splitlines():
            return ()
        script = (
            f"set -e; {quoted(*make_folder(DEPLOY_STATE, 0o700))}; "
            f"{{ echo {quoted(mark)}; for folder in {quoted(*self.folders)}; do "
            f'[ -d "$folder" ] || echo "$folder"; done; }} >>{path}; [ -e /etc/fstab ] || touch {DEPLOY_STATE}/no-fstab'
        )
        steps = (Shell("note which folders are there", script),)
        return (Change("file", path, "create", "what `reset` has to know", steps),)


@dataclass(frozen=True)
class Masked:
    """Units that must not run here; which of them did is remembered for `reset`."""

    names: tuple[str, ...]
    why: str = "NFS version 4 does not need them"

    def changes(self, facts: MachineFacts) -> tuple[Change, ...]:
        """Mask those that are not, before a package brings and starts them."""
        open_ones = [name for name in self.names if (unit := facts.unit(name)) is None or unit.enabled != "masked"]
        if not open_ones:
            return ()
        script = (
            f"set -e; for unit in {quoted(*open_ones)}; do "
            f'echo "$unit $(systemctl is-active "$unit")" >>{DEPLOY_STATE}/masked; '
            'systemctl mask --quiet "$unit" 2>/dev/null; systemctl stop "$unit" 2>/dev/null || :; done'
        )
        names = ", ".join(open_ones)
        steps = (Shell(f"mask {names}", script, 60.0),)
        return (Change("unit", names, "mask", self.why, steps),)


@dataclass(frozen=True)
class Mounted:
    """A mount point of our fstab lines that systemd has to serve: an automount, or a bind mount on the server."""

    path: str
    source: str
    automount: bool
    read_only: bool = False

    @classmethod
    def of(cls, line: str) -> Self:
        """As a line of fstab has it."""
        source, path, _, options, *_ = line.split()
        words = options.split(",")
        return cls(path, source, "x-systemd.automount" in words, "ro" in words)

    def changes(self, facts: MachineFacts) -> tuple[Change, ...]:
        """Start it; one that comes from somewhere else, or with other access, is taken down first."""
        now = facts.mounts.get(self.path)
        if now is not None and self._is_wanted(now, facts):
            return ()
        point = quoted(self.path)
        kind = "automount" if self.automount else "mount"
        script = (
            f"{quoted(*make_point(self.path))} || exit 1; "
            f'systemctl reset-failed "$(systemd-escape -p --suffix={kind} {point})" 2>/dev/null; '
            f'systemctl start "$(systemd-escape -p --suffix={kind} {point})"'
        )
        if now is not None:
            script = _taken_down(self.path) + script
        steps = (Shell(f"mount {self.path}", script, 60.0),)
        detail = f"from {self.source}" + (", read-only" if self.read_only else "")
        return (Change("mount", self.path, "create" if now is None else "change", detail, steps),)

    def _is_wanted(self, now: MountFact, facts: MachineFacts) -> bool:
        if self.automount:
            return now.waiting or (now.source, now.read_only) == (self.source, self.read_only)
        return (now.device, now.root) == facts.place(self.source)


def _taken_down(path: str) -> str:
    """A process keeps its open files. Until systemd has seen the end of the mount, a start would find it still up.

    The mount's own unit is not stopped: that would end a job, which requires it.
    """
    point = quoted(path)
    return (
        f'systemctl stop "$(systemd-escape -p --suffix=automount {point})" 2>/dev/null; '
        f"while grep -qF ' '{point}' ' /proc/mounts; do umount -l {point} || break; done; "
        f"unit=$(systemd-escape -p --suffix=mount {point}); tries=0; "
        'while systemctl -q is-active "$unit" && [ $tries -lt 50 ]; do tries=$((tries + 1)); sleep 0.2; done; '
    )


@dataclass(frozen=True)
class Exports:
    """/etc/exports.d of the storage server, and that the running server knows them."""

    path: str
    text: str

    def changes(self, facts: MachineFacts) -> tuple[Change, ...]:
        """Write and export again. Never a restart: it would stall writers for up to ninety seconds."""
        now = facts.files.get(self.path)
        known, wanted = _clients(facts.exports), _clients(self.text.splitlines())
        if now is not None and now.content == self.text.encode() and wanted <= known:
            return ()
        detail = f"{len(wanted)} entries, one for each client and folder"
        again = Shell("export the folders", "exportfs -ra")
        return (written("export", self.path, self.text.encode(), facts, detail, then=[again]),)


def _clients(lines: Iterable[str]) -> set[tuple[str, str]]:
    """Folder and client of each entry."""
    words = [line.split() for line in lines if not line.startswith("#")]
    return {(folder, one.partition("(")[0]) for folder, *clients in words for one in clients}


@dataclass(frozen=True)
class UnitFiles:
    """Unit files and drop-ins, and systemd's knowledge of them."""

    texts: tuple[tuple[str, str], ...]

    def changes(self, facts: MachineFacts) -> tuple[Change, ...]:
        """Write what differs; the last change has systemd read them."""
        made = all_written("unit", self.texts, facts, "unit file")
        # A unit that is new is read when it is started. A new drop-in of one that runs is not, and the firewall's runs
        # by then, which no fact shows yet.
        ours = any(name.startswith("pscluster-") and unit.running for name, unit in facts.units.items())
        if made and (ours or any(change.action == "change" or ".d/" in change.subject for change in made)):
            made[-1] = replace(made[-1], steps=(*made[-1].steps, RELOAD))
        elif any(unit.needs_reload for unit in facts.units.values()):
            made.append(Change("unit", "systemd", "change", "its files changed after it read them", (RELOAD,)))
        return tuple(made)


@dataclass(frozen=True)
class Running:
    """A unit that is enabled and runs, from this release and this unit file."""

    name: str
    file_path: str | None = None
    text: str | None = None
    release: str | None = None
    deadline_seconds: float = 330.0
    hint: str = ""
    until: str = ""
    """A line of shell that ends when what was started is ready, where systemd does not know that."""

    def changes(self, facts: MachineFacts) -> tuple[Change, ...]:
        """Start or restart it; the step ends when systemd counts it as up (with Type=notify: when it said READY=1)."""
        now = facts.unit(self.name)
        outdated = self._outdated(now, facts)
        reason = self._not_up(now, outdated) or outdated
        enabled = now is not None and now.enabled in ("enabled", "static", "indirect", "generated", "alias")
        if not reason and enabled:
            return ()
        # A start would join the one under way, whose process is of the old release and would be the one that comes up.
        verb = "restart" if outdated else "start"
        name = quoted(self.name)
        failed = f"{{ journalctl -q -o cat --no-pager -n 8 -u {name} >&2; exit 1; }}"
        lines = [f"systemctl reset-failed {name} 2>/dev/null"] if reason else []
        # By D-Bus each of them would have systemd read all units once more, or say of all that they need it.
        lines += [] if enabled else [f"systemctl --root=/ enable --quiet {name} || exit 1"]
        lines += [f"systemctl {verb} {name} || {failed}"] if reason else []
        lines += [self.until] if reason and self.until else []
        what = verb if reason else "enable"
        steps = (Shell(f"{what} {self.name}", "\n".join(lines), self.deadline_seconds, self.hint),)
        return (Change("unit", self.name, what, reason or "it does not start at boot", steps),)

    def _not_up(self, now: UnitFact | None, outdated: str) -> str:
        if now is None:
            return "not there yet"
        if now.running:
            return ""
        state = f"{now.active} ({now.sub})" + (f", result {now.result}" if now.result not in ("", "success") else "")
        return f"{state}, {outdated}" if outdated else state

    def _outdated(self, now: UnitFact | None, facts: MachineFacts) -> str:
        if now is None or not (now.running or now.starting):
            return ""
        # Between two attempts there is no process, and the next one is of the current release.
        if self.release is not None and now.release != self.release and (now.running or now.pid):
            return f"runs release {now.release or 'unknown'}"
        if self.file_path is not None and self.text is not None:
            file = facts.files.get(self.file_path)
            if file is None or file.content != self.text.encode():
                return "its unit file changes"
            # An earlier run may have written the file and been cut off before the restart.
            if now.started_seconds is not None and file.modified_seconds > now.started_seconds + 1:
                return "its unit file is newer than its process"
        return ""


@dataclass(frozen=True)
class MonitorFiles:
    """The folder that Prometheus reads, and that a running one has read it."""

    texts: tuple[tuple[str, str], ...]

    def changes(self, facts: MachineFacts) -> tuple[Change, ...]:
        """Write what differs; with the last one lists of other clusters go, and Prometheus reads all of it again.

        That it has read these very texts says a mark, written last: a deployment may have been cut off before that.
        """
        made = all_written("file", self.texts, facts, "read by Prometheus")
        mark = facts.files.get(MONITOR_READ_MARK)
        words = "\0".join(word for pair in self.texts for word in pair)
        digest = hashlib.sha256(words.encode()).hexdigest().encode()
        if not made and mark is not None and mark.content == digest:
            return ()
        reread = (
            Shell("have Prometheus read it", self._reread(), 120.0, MONITOR_HINT),
            Upload(f"write {MONITOR_READ_MARK}", digest, MONITOR_READ_MARK),
        )
        if made:
            made[-1] = replace(made[-1], steps=(*made[-1].steps, *reread))
        else:
            made.append(Change("file", units.MONITOR_FOLDER, "change", "Prometheus has not read it yet", reread))
        return tuple(made)

    def _reread(self) -> str:
        kept = " ".join(f"! -name {quoted(path.rpartition('/')[2])}" for path, _ in self.texts)
        unit = units.MONITOR_UNIT
        return (
            f"find {units.MONITOR_FOLDER}/targets -name 'pscluster-*.json' {kept} -delete; "
            f'case "$(systemctl is-active {unit})" in active | reloading) systemctl reload {unit} ;; '
            # It may have read what was there before, and is not up yet for a reload.
            f"activating) systemctl try-restart --no-block {unit} ;; esac"
        )
