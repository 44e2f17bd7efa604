"""Files, folders and links of a node as the inventory wants them. Pure."""

from dataclasses import dataclass

from deploy.common.command_line import quoted
from deploy.converge.change import Change, Shell, Step, Upload, text_diff
from deploy.converge.machine_facts import MachineFacts
from deploy.rooted.commands import make_folder, remove


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
        before = None if now is None else now.content
        detail = f"{len(self.content)} bytes, mode {self.mode:04o}"
        folder = self.path.rpartition("/")[0]
        steps: tuple[Step, ...] = (
            Shell(f"make {folder}", quoted(*make_folder(folder))),
            Upload(f"write {self.path}", self.content, self.path, self.mode),
            *self.then,
        )
        diff = text_diff(self.path, before, self.content)
        return (Change("file", self.path, "create" if now is None else "change", detail, steps, diff),)


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
