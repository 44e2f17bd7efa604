"""What the system of a node has of ours: packages, accounts with their numbers, mounts. Pure.

`reset` takes the packages away again that came with ours, and puts the accounts' files back. The
shared folders are lines of fstab, which systemd mounts.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from deploy.cluster import places
from deploy.cluster.places import ACCOUNTS, DEPLOY_STATE, STATE, account_numbers
from deploy.common.command_line import Inline, filled, quoted
from deploy.converge.machine_facts import MachineFacts, MountFact, Questions
from deploy.converge.subject import (
    Change,
    DeploymentSpec,
    Found,
    NodeAnswer,
    NodeSpec,
    Resource,
    Shell,
    Subject,
    text_diff,
)
from deploy.render import storage, units
from deploy.render.network import IN_THE_KERNEL, IN_USER_SPACE, TUNNEL_MODULE
from deploy.rooted.commands import make_point

_ACCOUNT_FILES = ("passwd", "group", "shadow", "gshadow", "subuid", "subgid")
KEEP_COPIES = (
    f"set -e; [ -d {DEPLOY_STATE}/account ] || {{ mkdir -p {DEPLOY_STATE}/account; "
    f"for file in {quoted(*_ACCOUNT_FILES)}; do "
    f"[ ! -e /etc/$file- ] || cp -p /etc/$file- {DEPLOY_STATE}/account/; done; }}; "
)
"""A new account, also a package's, leaves copies of the files before it (passwd-): `reset` puts the
first back."""


def _undo_accounts() -> str:
    return filled(
        "converge/accounts_undo.sh", accounts=ACCOUNTS, places=places, files=_ACCOUNT_FILES
    )


def _account_script(questions: Questions) -> str:
    first = questions.service_uid
    numbers = quoted(*range(first, first + len(ACCOUNTS)))
    return f"""\
section users; getent passwd {quoted(*ACCOUNTS)}
section uid; getent passwd {numbers}
section gid; getent group {numbers}
section powers
for account in {quoted(*ACCOUNTS)}; do
    can=$(getent passwd "$account" | sed 's/.*://' | grep -vE '/(nologin|false)$')
    for group in $(id -Gn "$account" 2>/dev/null); do
        [ "$group" = "$account" ] || can="$can group:$group"
    done
    [ -z "$can" ] || echo "$account" $can
done
"""


def _account_facts(answer: NodeAnswer) -> Mapping[str, object]:
    return {
        "users": {
            fields[0]: (int(fields[2]), int(fields[3])) for fields in _entries(answer, "users")
        },
        "uid_owners": {int(fields[2]): fields[0] for fields in _entries(answer, "uid")},
        "gid_owners": {int(fields[2]): fields[0] for fields in _entries(answer, "gid")},
        "powers": {
            name: powers[:200]
            for name, _, powers in (
                line.partition(" ") for line in answer.sections.get("powers", "").splitlines()
            )
        },
    }


def _entries(answer: NodeAnswer, section: str) -> Iterator[Sequence[str]]:
    """Yield the fields of each line of passwd or group."""
    for line in answer.sections[section].split("\n"):
        fields = line.split(":")
        if len(fields) > 3:
            yield fields


def _account_findings(spec: NodeSpec, facts: MachineFacts) -> Found:
    remedy = (
        "choose a number that is free everywhere, with the three after it, as"
        " `deployment.service_uid`"
    )
    for name, uid in account_numbers(spec.inventory).items():
        present = facts.users.get(name)
        if present is not None and present != (uid, uid):
            line = f"the account {name} has uid {present[0]} and gid {present[1]} here, not {uid}"
            way = f"`sudo userdel {name}` there, or change `deployment.service_uid`"
            yield "problem", "account", f"{line}: {way}"
        for kind, owners in (("uid", facts.uid_owners), ("gid", facts.gid_owners)):
            owner = owners.get(uid, name)
            if owner != name:
                yield (
                    "problem",
                    "account",
                    f"{kind} {uid} of {name} belongs to {owner} here: {remedy}",
                )


@dataclass(frozen=True)
class NodeAccount:
    """The account of one kind of process, with the same uid and gid everywhere; without a login."""

    name: str
    uid: int

    def changes(self, facts: MachineFacts) -> tuple[Change, ...]:
        """Create it, or take its powers. The check has seen that the uid is free."""
        if facts.users.get(self.name) == (self.uid, self.uid):
            if self.name not in facts.powers:
                return ()
            script = KEEP_COPIES + quoted(
                *("usermod", "--shell", "/usr/sbin/nologin", "--groups", "", self.name)
            )
            steps = (Shell(f"take the powers of the account {self.name}", script),)
            detail = f"it has {facts.powers[self.name]}"
            return (Change("user", self.name, "change", detail, steps),)
        script = (
            KEEP_COPIES + f"getent group {quoted(self.name)} >/dev/null || groupadd --system"
            f" --gid {self.uid:d} {quoted(self.name)}; useradd --system --uid {self.uid:d}"
            f" --gid {self.uid:d} --no-create-home --home-dir {STATE} --shell /usr/sbin/nologin"
            f" {quoted(self.name)}"
        )
        steps = (Shell(f"add the account {self.name}", script),)
        return (Change("user", self.name, "create", f"uid and gid {self.uid}", steps),)


def _account_resources(spec: DeploymentSpec, node: str, facts: MachineFacts) -> Sequence[Resource]:
    return [NodeAccount(name, uid) for name, uid in account_numbers(spec.inventory).items()]


def _account_questions(spec: DeploymentSpec, node: str) -> Questions:
    return Questions(service_uid=spec.inventory.deployment.service_uid)


NODE_ACCOUNTS = Subject(
    "accounts",
    "prepare",
    _account_script,
    _account_facts,
    _account_findings,
    _account_resources,
    _undo_accounts,
    _account_questions,
)


PACKAGE_SECONDS = 900.0
_APT = (
    "LC_ALL=C DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 -o"
    " Acquire::Retries=2 -q -y"
)
"""The command, in English, because a held lock is known by these words."""

PLANNED = f"{DEPLOY_STATE}/packages.planned"
"""The packages that apt was about to add; while the file exists, what was added is not noted yet.

The packages of before are not in it: after a cut-off installation a person may install others.
"""


_APT_LOG = "/run/pscluster-apt.log"
_APT_BUSY = "another program holds apt's lock: start again when it has ended"
_APT_SOURCES = (
    "look into `apt-get update` there: the node needs its package sources, or the packages"
    " installed by hand"
)


def _apt_script(name: str, **values: str | list[str]) -> str:
    return filled(f"converge/{name}", places=places, planned=PLANNED, apt=Inline(_APT), **values)


def _undo_packages() -> str:
    return _apt_script("packages_undo.sh")


def _package_script(questions: Questions) -> str:
    packages = quoted(*(questions.packages or ("dpkg",)))
    return f"""\
section packages
dpkg-query -W -f '${{Package}} ${{db:Status-Abbrev}} ${{Version}}\\n' {packages} 2>/dev/null
"""


def _package_facts(answer: NodeAnswer) -> Mapping[str, object]:
    installed = (line.split() for line in answer.sections["packages"].splitlines())
    return {
        "packages": {
            fields[0]: fields[2]
            for fields in installed
            if len(fields) == 3 and fields[1].startswith("ii")
        }
    }


@dataclass(frozen=True)
class Packages:
    """Debian packages that have to be there; `reset` knows what their installation adds."""

    names: tuple[str, ...]

    def changes(self, facts: MachineFacts) -> tuple[Change, ...]:
        """Install what is missing, in one go."""
        missing = [name for name in self.names if name not in facts.packages]
        if not missing:
            if PLANNED in facts.files:
                return _note()
            return ()
        script = _apt_script(
            "packages_install.sh",
            keep_copies=Inline(KEEP_COPIES),
            missing=missing,
            log=_APT_LOG,
            busy=_APT_BUSY,
            sources=_APT_SOURCES,
        )
        steps = (Shell(f"install {', '.join(missing)}", script, PACKAGE_SECONDS),)
        return (Change("package", ", ".join(missing), "install", "and what it depends on", steps),)


def _note() -> tuple[Change, ...]:
    """Note what an installation that was cut off has added; everything is there by now."""
    remember = _apt_script("packages_remember.sh")
    steps = (Shell("note which packages were added", f"set -e; {remember}"),)
    detail = "what an installation added that was cut off"
    return (Change("file", f"{DEPLOY_STATE}/packages", "change", detail, steps),)


def _package_resources(spec: DeploymentSpec, node: str, facts: MachineFacts) -> Sequence[Resource]:
    deployment = spec.inventory.deployment
    if spec.stores(node):
        names = ["nfs-kernel-server"]
    else:
        names = ["nfs-common"]
    if deployment.firewall:
        names.append("nftables")
    if deployment.node_exporter:
        names.append(units.NODE_EXPORTER)
    if spec.watches(node):
        names.append(units.MONITOR_PACKAGE)
    if spec.inventory.encrypted:
        names.append(IN_THE_KERNEL)
        if not facts.more.get(TUNNEL_MODULE):
            names.append(IN_USER_SPACE)
    return (Packages(tuple(names)),)


def _package_questions(spec: DeploymentSpec, node: str) -> Questions:
    return Questions(files=(PLANNED,))


PACKAGES = Subject(
    "packages",
    "prepare",
    _package_script,
    _package_facts,
    resources=_package_resources,
    undo=_undo_packages,
    questions=_package_questions,
)


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
        text = "".join(f"{line}\n" for line in marked_lines)
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
            script = _unmount_script(self.path) + script
        steps = (Shell(f"mount {self.path}", script, 60.0),)
        detail = f"from {self.source}" + (", read-only" if self.read_only else "")
        return (Change("mount", self.path, "create" if now is None else "change", detail, steps),)

    def _is_wanted(self, now: MountFact, facts: MachineFacts) -> bool:
        if self.automount:
            return now.waiting or (now.source, now.read_only) == (self.source, self.read_only)
        return (now.device, now.root) == facts.place(self.source)


def _unmount_script(path: str) -> str:
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


def _mount_resources(spec: DeploymentSpec, node: str, facts: MachineFacts) -> Sequence[Resource]:
    lines = storage.fstab_lines(spec.inventory, node, spec.folders)
    return (FstabLines(lines), *(Mounted.of(line) for line in lines))


MOUNTS = Subject("mounts", "mounts", resources=_mount_resources)
