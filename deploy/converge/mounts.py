"""The shared folders as a node mounts them: lines of fstab, and mounts by systemd. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from deploy.common.command_line import quoted
from deploy.converge.change import Change, Resource, Shell, text_diff
from deploy.converge.machine_facts import MachineFacts, MountFact
from deploy.converge.subject import DeploymentSpec, Subject
from deploy.render import storage
from deploy.rooted.commands import make_point

FSTAB_BEGIN = "# pscluster: begin"
FSTAB_END = "# pscluster: end"

WITHOUT_OURS = (
    f'$0 == "{FSTAB_BEGIN}" {{ printf "%s", lines; held = 1; lines = ""; next }} '
    f'$0 == "{FSTAB_END}" && held {{ held = 0; lines = ""; next }} '
    'held { lines = lines $0 "\\n"; next } { print } END { printf "%s", lines }'
)
"""A program for awk. If a person removed the second mark, all lines after the first stay: some are
theirs."""


def own_fstab_lines(lines: tuple[str, ...]) -> tuple[str, ...]:
    """The part of fstab between our marks, marks included; empty without it."""
    if FSTAB_BEGIN not in lines:
        return ()
    begin = lines.index(FSTAB_BEGIN)
    if FSTAB_END in lines[begin:]:
        end = lines.index(FSTAB_END, begin)
    else:
        end = len(lines) - 1
    return lines[begin : end + 1]


@dataclass(frozen=True)
class FstabLines:
    """Our lines of /etc/fstab, between two marks; the others stay as they are.

    The mounts themselves are `Mounted`.
    """

    lines: tuple[str, ...]

    def changes(self, facts: MachineFacts) -> tuple[Change, ...]:
        """Replace our part."""
        marked_lines = (*([FSTAB_BEGIN, *self.lines, FSTAB_END] if self.lines else []),)
        if own_fstab_lines(facts.fstab) == marked_lines:
            return ()
        if marked_lines:
            text = "\n".join(marked_lines) + "\n"
        else:
            text = ""
        script = (
            f"awk {quoted(WITHOUT_OURS)} /etc/fstab >/etc/fstab.pscluster 2>/dev/null; "
            f"printf %s {quoted(text)} >>/etc/fstab.pscluster && chmod 644 /etc/fstab.pscluster && "
            "mv -f /etc/fstab.pscluster /etc/fstab && systemctl daemon-reload"
        )
        diff = text_diff(
            "/etc/fstab", "\n".join(own_fstab_lines(facts.fstab)).encode(), text.encode()
        )
        detail = f"{len(self.lines)} lines"
        return (
            Change(
                "mount", "/etc/fstab", "change", detail, (Shell("write /etc/fstab", script),), diff
            ),
        )


@dataclass(frozen=True)
class Mounted:
    """A mount point of our lines of fstab: an automount, or a bind mount on the server."""

    path: str
    source: str
    automount: bool
    read_only: bool = False

    @classmethod
    def of(cls, line: str) -> Self:
        """Return the mount of a line of fstab."""
        source, path, _, options, *_ = line.split()
        mount_options = options.split(",")
        return cls(path, source, "x-systemd.automount" in mount_options, "ro" in mount_options)

    def changes(self, facts: MachineFacts) -> tuple[Change, ...]:
        """Start it; one that shows something else, or with other access, is taken down first."""
        now = facts.mounts.get(self.path)
        if now is not None and self._is_wanted(now, facts):
            return ()
        point = quoted(self.path)
        if self.automount:
            kind = "automount"
        else:
            kind = "mount"
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
    """Return shell that unmounts `path` and waits until systemd has noticed.

    Open files of running processes stay usable.

    The mount's own unit is not stopped: that would end a job, which requires it.
    """
    point = quoted(path)
    return (
        f'systemctl stop "$(systemd-escape -p --suffix=automount {point})" 2>/dev/null; '
        f"while grep -qF ' '{point}' ' /proc/mounts; do umount -l {point} || break; done; "
        f"unit=$(systemd-escape -p --suffix=mount {point}); tries=0; "
        'while systemctl -q is-active "$unit" && [ $tries -lt 50 ]; do tries=$((tries + 1)); sleep'
        " 0.2; done; "
    )


def _resources(spec: DeploymentSpec, node: str, facts: MachineFacts) -> Sequence[Resource]:
    lines = storage.fstab_lines(spec.inventory, node, spec.folders)
    return (FstabLines(lines), *(Mounted.of(line) for line in lines))


MOUNTS = Subject("mounts", "mounts", resources=_resources)
