"""The changes that make files, folders and units of a node what they have to be. Pure.

Whether a unit's own process listens on a port is for a program that the node's Python runs.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from deploy.cluster.places import DEPLOY_STATE
from deploy.common.command_line import quoted
from deploy.converge.machine_facts import MachineFacts, UnitFact
from deploy.converge.subject import Change, Changes, Shell, Step, Upload, text_diff
from deploy.rooted.commands import PYTHON, give_folder, make_folder, remove

RELOAD = Shell("reload systemd", "systemctl daemon-reload")


def written(
    kind: str,
    path: str,
    content: bytes,
    facts: MachineFacts,
    detail: str,
    mode: int = 0o644,
    then: Iterable[Shell] = (),
    owner: str = "root",
) -> Change:
    """The change that writes a file, whatever the node has; `then` is run afterwards."""
    now = facts.files.get(path)
    folder = path.rpartition("/")[0]
    steps: tuple[Step, ...] = (
        Shell(f"make {folder}", quoted(*make_folder(folder))),
        Upload(f"write {path}", content, path, mode, owner),
        *then,
    )
    return Change(
        kind,
        path,
        "create" if now is None else "change",
        detail,
        steps,
        text_diff(path, None if now is None else now.content, content),
    )


def all_written(
    kind: str, texts: Iterable[tuple[str, str]], facts: MachineFacts, detail: str
) -> list[Change]:
    """The changes that write those of these files, by path and text, that the node has not."""
    return [
        written(kind, path, text.encode(), facts, detail)
        for path, text in texts
        if (now := facts.files.get(path)) is None
        or (now.content, now.mode) != (text.encode(), 0o644)
    ]


def keep_folder(
    facts: MachineFacts, path: str, mode: int = 0o755, owner: str = "root", *, whole: bool = False
) -> Changes:
    """Make a folder, or set its owner and mode: never through a link of any account.

    What is in it stays. `whole`: where it was another account's, all in it is given over too.
    """
    now = facts.files.get(path)
    if now is not None and (now.kind, now.mode, now.owner) == ("folder", mode, owner):
        return
    if whole and now is not None and now.owner != owner:
        command = give_folder(path, mode, owner)
    else:
        command = make_folder(path, mode, owner)
    yield Change(
        "file",
        path,
        "create" if now is None else "change",
        f"mode {mode:04o}, owner {owner}",
        (Shell(f"make {path}", quoted(*command)),),
    )


def keep_file(
    facts: MachineFacts,
    path: str,
    content: bytes,
    mode: int = 0o644,
    then: tuple[Shell, ...] = (),
) -> Changes:
    """Write a file unless content, owner and mode are as wanted; `then` is run when it was."""
    now = facts.files.get(path)
    if now is None or (now.content, now.mode, now.owner) != (content, mode, "root"):
        yield written(
            "file", path, content, facts, f"{len(content)} bytes, mode {mode:04o}", mode, then
        )


def keep_secret(facts: MachineFacts, path: str, secret: str, owner: str = "root") -> Changes:
    """Write a file that its owner alone reads, and that no plan shows."""
    content = f"{secret}\n".encode()
    now = facts.files.get(path)
    if now is None or (now.content, now.mode, now.owner) != (content, 0o600, owner):
        detail = f"a secret, for {owner} alone"
        yield replace(written("file", path, content, facts, detail, 0o600, owner=owner), diff="")


def keep_absent(
    facts: MachineFacts, path: str, before: tuple[Shell, ...] = (), then: tuple[Shell, ...] = ()
) -> Changes:
    """Remove a path of ours that must not be there any more; `before` is run first."""
    if path in facts.files:
        yield Change(
            "file",
            path,
            "remove",
            "not in the inventory any more",
            (*before, Shell(f"remove {path}", quoted(*remove(path))), *then),
        )


def keep_masked(
    facts: MachineFacts, names: Iterable[str], why: str = "NFS version 4 does not need them"
) -> Changes:
    """Mask units that must not run here, before a package brings and starts them.

    Which of them did is remembered for `reset`.
    """
    unmasked = [
        name for name in names if (unit := facts.unit(name)) is None or unit.enabled != "masked"
    ]
    if not unmasked:
        return
    script = (
        f"set -e; for unit in {quoted(*unmasked)}; do "
        f'echo "$unit $(systemctl is-active "$unit")" >>{DEPLOY_STATE}/masked; '
        'systemctl mask --quiet "$unit" 2>/dev/null; systemctl stop "$unit" 2>/dev/null || :;'
        " done"
    )
    listing = ", ".join(unmasked)
    yield Change(
        "unit", listing, "mask", why, (Shell(f"mask {listing}", script, 60.0),), runs_jobs=True
    )


def keep_unit_files(facts: MachineFacts, texts: Iterable[tuple[str, str]]) -> Changes:
    """Write unit files and drop-ins that differ; the last change has systemd read them."""
    file_changes = [
        replace(change, runs_jobs=True) for change in all_written("unit", texts, facts, "unit file")
    ]
    # A unit that is new is read when it is started. A new drop-in of one that runs is not, and
    # the firewall's runs by then, which no fact shows yet.
    own_unit_runs = any(
        name.startswith("pscluster-") and unit.running for name, unit in facts.units.items()
    )
    if file_changes and (
        own_unit_runs
        or any(change.action == "change" or ".d/" in change.subject for change in file_changes)
    ):
        file_changes[-1] = replace(file_changes[-1], steps=(*file_changes[-1].steps, RELOAD))
    elif any(unit.needs_reload for unit in facts.units.values()):
        file_changes.append(
            Change(
                "unit",
                "systemd",
                "change",
                "its files changed after it read them",
                (RELOAD,),
                runs_jobs=True,
            )
        )
    yield from file_changes


@dataclass(frozen=True)
class RunningUnit:
    """A unit that is enabled and runs, from this release and this unit file."""

    name: str
    file_path: str | None = None
    text: str | None = None
    release: str | None = None
    deadline_seconds: float = 330.0
    hint: str = ""
    until: str = ""
    """A line of shell that ends when what was started is ready, where systemd does not know that.
    """
    account: int = 0
    """The uid of its process, which has no other group than that of this number."""
    because: str = ""
    """The reason to start what runs again, besides what the facts of the unit say."""

    def changes(self, facts: MachineFacts) -> Changes:
        """Start or restart it; the step ends when systemd counts it as up.

        With Type=notify that is when it said READY=1.
        """
        now = facts.unit(self.name)
        outdated = self._outdated(now, facts)
        reason = self._not_up(now, outdated) or outdated
        enabled = now is not None and now.enabled in (
            "enabled",
            "static",
            "indirect",
            "generated",
            "alias",
        )
        if not reason and enabled:
            return
        # A start would join the one under way, whose process is of the old release and would be the
        # one that comes up.
        what = "enable"
        if reason:
            if outdated:
                what = "restart"
            else:
                what = "start"
        name = quoted(self.name)
        lines = []
        if reason:
            lines.append(f"systemctl reset-failed {name} 2>/dev/null")
        if not enabled:
            # By D-Bus each of them would have systemd read all units once more, or say of all that
            # they need it.
            lines.append(f"systemctl --root=/ enable --quiet {name} || exit 1")
            if now is not None and now.active != "inactive":
                lines.append(RELOAD.script)  # else it calls a unit disabled that it holds
        if reason:
            lines.append(
                f"systemctl {what} {name} || {{ journalctl -q -o cat --no-pager -n 8 -u"
                f" {name} >&2; exit 1; }}"
            )
            if self.until:
                lines.append(self.until)
        steps = (Shell(f"{what} {self.name}", "\n".join(lines), self.deadline_seconds, self.hint),)
        detail = reason or "it does not start at boot"
        yield Change("unit", self.name, what, detail, steps, runs_jobs=True)

    def _not_up(self, now: UnitFact | None, outdated: str) -> str:
        if now is None:
            return "not there yet"
        if now.running:
            return ""
        state = f"{now.active} ({now.sub})" + (
            f", result {now.result}" if now.result not in ("", "success") else ""
        )
        if outdated:
            return f"{state}, {outdated}"
        return state

    def _outdated(self, now: UnitFact | None, facts: MachineFacts) -> str:
        if now is None or not (now.running or now.starting):
            return ""
        if self.because:
            return self.because
        # Between two attempts there is no process, and the next one is of the current release.
        if self.release is not None and now.release != self.release and (now.running or now.pid):
            return f"runs release {now.release or 'unknown'}"
        if self.release is not None and facts.current not in (None, *facts.release_environments):
            return "the code of its release was changed"
        if self.account and now.running and now.identity not in ("", "-", str(self.account)):
            return f"runs as {now.identity} (uid and more groups), not as {self.account}"
        if self.file_path is not None and self.text is not None:
            file = facts.files.get(self.file_path)
            if file is None or file.content != self.text.encode():
                return "its unit file changes"
            # An earlier run may have written the file and been cut off before the restart.
            if now.started_seconds is not None and file.modified_seconds > now.started_seconds + 1:
                return "its unit file is newer than its process"
        return ""


OWNER = """\
import os, subprocess
def main_pid(unit):
    asked = ["systemctl", "show", "--value", "-p", "MainPID", unit]
    return subprocess.run(asked, stdout=subprocess.PIPE, text=True).stdout.strip()
def owns(pid, port):
    try:
        files = f"/proc/{int(pid)}/fd"
        held = {os.readlink(f"{files}/{one}") for one in os.listdir(files)}
    except (OSError, ValueError):
        return False
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(table, encoding="ascii") as lines:
            for fields in map(str.split, list(lines)[1:]):
                listens = fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port
                if listens and f"socket:[{fields[9]}]" in held:
                    return True
    return False
"""
"""Python that defines `main_pid` and `owns`.

It compares sockets by their inode: what `ss` prints of a process is the name that it gave itself.
"""
_WAIT = """\
import sys, time
unit, port = sys.argv[1:]
for _ in range(50):
    if owns(main_pid(unit), int(port)):
        sys.exit()
    time.sleep(0.2)
said = ["journalctl", "-q", "-o", "cat", "--no-pager", "-n", "8", "-u", unit]
subprocess.run(said, stdout=sys.stderr)
sys.exit(1)
"""


def until_it_listens(unit: str, port: int) -> str:
    """Return shell that waits until a unit's process listens on its port, and fails otherwise.

    systemd counts a unit of Type=simple as up as soon as its process exists.
    """
    return quoted(PYTHON, "-I", "-S", "-c", OWNER + _WAIT, unit, port)
