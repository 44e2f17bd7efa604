"""What the system of a node has of ours: packages, accounts with their numbers, mounts. Pure.

`reset` takes the packages away again that came with ours, and puts the accounts' files back. The
shared folders are lines of fstab, which systemd mounts.
"""

from collections.abc import Iterator, Sequence

from deploy.cluster import places
from deploy.cluster.places import ACCOUNTS, DEPLOY_STATE, STATE, account_numbers
from deploy.common.command_line import Inline, filled, quoted
from deploy.converge.machine_facts import MachineFacts, Questions, Texts
from deploy.converge.subject import (
    Change,
    Changes,
    DeploymentSpec,
    Found,
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


_UNDO_ACCOUNTS = filled(
    "converge/accounts_undo.sh", accounts=ACCOUNTS, places=places, files=_ACCOUNT_FILES
)


def _users(text: str) -> dict[str, tuple[int, int]]:
    return {fields[0]: (int(fields[2]), int(fields[3])) for fields in _entries(text)}


def _owners(text: str) -> dict[int, str]:
    return {int(fields[2]): fields[0] for fields in _entries(text)}


def _powers(text: str) -> dict[str, str]:
    lines = (line.partition(" ") for line in text.splitlines())
    return {name: powers[:200] for name, _, powers in lines}


def _entries(text: str) -> Iterator[Sequence[str]]:
    """Yield the fields of each line of passwd or group."""
    for line in text.split("\n"):
        fields = line.split(":")
        if len(fields) > 3:
            yield fields


def _account_findings(spec: DeploymentSpec, facts: MachineFacts) -> Found:
    remedy = (
        "choose a number that is free everywhere, with the three after it, as"
        " `deployment.service_uid`"
    )
    for name, uid in account_numbers(spec.inventory).items():
        present = facts.users.get(name)
        if present is not None and present != (uid, uid):
            yield (
                "problem",
                "account",
                f"the account {name} has uid {present[0]} and gid {present[1]} here, not"
                f" {uid}: `sudo userdel {name}` there, or change `deployment.service_uid`",
            )
        for kind, owners in (("uid", facts.uid_owners), ("gid", facts.gid_owners)):
            owner = owners.get(uid, name)
            if owner != name:
                yield (
                    "problem",
                    "account",
                    f"{kind} {uid} of {name} belongs to {owner} here: {remedy}",
                )


def keep_account(facts: MachineFacts, name: str, uid: int) -> Changes:
    """Create the account of one kind of process, or take its powers; it has no login.

    It has the same uid and gid everywhere. The check has seen that the uid is free.
    """
    if facts.users.get(name) == (uid, uid):
        if name in facts.powers:
            login = ("usermod", "--shell", "/usr/sbin/nologin", "--groups", "", name)
            script = KEEP_COPIES + quoted(*login)
            yield Change(
                "user",
                name,
                "change",
                f"it has {facts.powers[name]}",
                (Shell(f"take the powers of the account {name}", script),),
            )
        return
    script = (
        KEEP_COPIES + f"getent group {quoted(name)} >/dev/null || groupadd --system"
        f" --gid {uid:d} {quoted(name)}; useradd --system --uid {uid:d}"
        f" --gid {uid:d} --no-create-home --home-dir {STATE} --shell /usr/sbin/nologin"
        f" {quoted(name)}"
    )
    yield Change(
        "user", name, "create", f"uid and gid {uid}", (Shell(f"add the account {name}", script),)
    )


def _plan_accounts(spec: DeploymentSpec, facts: MachineFacts) -> Changes:
    for name, uid in account_numbers(spec.inventory).items():
        yield from keep_account(facts, name, uid)


NODE_ACCOUNTS = Subject(
    "accounts",
    "prepare",
    facts={
        "users": _users,
        "uid_owners": _owners,
        "gid_owners": _owners,
        "powers": _powers,
    },
    check=_account_findings,
    plan=_plan_accounts,
    undo=_UNDO_ACCOUNTS,
    questions=lambda spec: Questions(uids=tuple(account_numbers(spec.inventory).values())),
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


def _packages(text: str) -> dict[str, str]:
    installed = (line.split() for line in text.splitlines())
    return {
        fields[0]: fields[2]
        for fields in installed
        if len(fields) == 3 and fields[1].startswith("ii")
    }


def keep_packages(facts: MachineFacts, names: Sequence[str]) -> Changes:
    """Install the Debian packages that are missing, in one go; `reset` knows what that adds."""
    missing = [name for name in names if name not in facts.packages]
    if missing:
        script = _apt_script(
            "packages_install.sh",
            keep_copies=Inline(KEEP_COPIES),
            missing=missing,
            log=_APT_LOG,
            busy=_APT_BUSY,
            sources=_APT_SOURCES,
        )
        listing = ", ".join(missing)
        yield Change(
            "package",
            listing,
            "install",
            "and what it depends on",
            (Shell(f"install {listing}", script, PACKAGE_SECONDS),),
        )
    elif PLANNED in facts.files:  # an installation was cut off, and everything is there by now
        remember = _apt_script("packages_remember.sh")
        yield Change(
            "file",
            f"{DEPLOY_STATE}/packages",
            "change",
            "what an installation added that was cut off",
            (Shell("note which packages were added", f"set -e; {remember}"),),
        )


def _plan_packages(spec: DeploymentSpec, facts: MachineFacts) -> Changes:
    deployment = spec.inventory.deployment
    if spec.stores:
        names = ["nfs-kernel-server"]
    else:
        names = ["nfs-common"]
    if deployment.firewall:
        names.append("nftables")
    if deployment.node_exporter:
        names.append(units.NODE_EXPORTER)
    if spec.watches:
        names.append(units.MONITOR_PACKAGE)
    if spec.inventory.encrypted:
        names.append(IN_THE_KERNEL)
        if not facts.more.get(TUNNEL_MODULE):
            names.append(IN_USER_SPACE)
    return keep_packages(facts, names)


PACKAGES = Subject(
    "packages",
    "prepare",
    facts={"packages": _packages},
    plan=_plan_packages,
    undo=_apt_script("packages_undo.sh"),
    questions=lambda spec: Questions(files=(PLANNED,)),
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


def own_fstab_lines(lines: Texts) -> Texts:
    """The part of fstab between our marks, marks included; empty without it."""
    if FSTAB_BEGIN not in lines:
        return ()
    begin = lines.index(FSTAB_BEGIN)
    if FSTAB_END in lines[begin:]:
        end = lines.index(FSTAB_END, begin)
    else:
        end = len(lines) - 1
    return lines[begin : end + 1]


def keep_fstab(facts: MachineFacts, lines: Sequence[str]) -> Changes:
    """Replace our lines of /etc/fstab, between two marks; the others stay as they are.

    The mounts themselves are those of `keep_mounted`.
    """
    if lines:
        marked_lines = (FSTAB_BEGIN, *lines, FSTAB_END)
    else:
        marked_lines = ()
    own_lines = own_fstab_lines(facts.fstab)
    if own_lines == marked_lines:
        return
    text = "".join(f"{line}\n" for line in marked_lines)
    script = (
        f"awk {quoted(WITHOUT_OURS)} /etc/fstab >/etc/fstab.pscluster 2>/dev/null; "
        f"printf %s {quoted(text)} >>/etc/fstab.pscluster && chmod 644 /etc/fstab.pscluster && "
        "mv -f /etc/fstab.pscluster /etc/fstab && systemctl daemon-reload"
    )
    yield Change(
        "mount",
        "/etc/fstab",
        "change",
        f"{len(lines)} lines",
        (Shell("write /etc/fstab", script),),
        text_diff("/etc/fstab", "\n".join(own_lines).encode(), text.encode()),
    )


def keep_mounted(facts: MachineFacts, path: str, source: str, options: Sequence[str]) -> Changes:
    """Start a mount of our lines of fstab: an automount, or a bind mount on the server.

    One that shows something else, or with other access, is taken down first.
    """
    now = facts.mounts.get(path)
    automount = "x-systemd.automount" in options
    read_only = "ro" in options
    if now is not None:
        if not automount:
            is_right = (now.device, now.root) == facts.place(source)
        else:
            is_right = now.waiting or (now.source, now.read_only) == (source, read_only)
        if is_right:
            return
    point = quoted(path)
    if automount:
        kind = "automount"
    else:
        kind = "mount"
    script = (
        f"{quoted(*make_point(path))} || exit 1; "
        f'systemctl reset-failed "$(systemd-escape -p --suffix={kind} {point})" 2>/dev/null; '
        f'systemctl start "$(systemd-escape -p --suffix={kind} {point})"'
    )
    if now is not None:
        script = _unmount_script(path) + script
    yield Change(
        "mount",
        path,
        "create" if now is None else "change",
        f"from {source}" + (", read-only" if read_only else ""),
        (Shell(f"mount {path}", script, 60.0),),
    )


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


def _plan_mounts(spec: DeploymentSpec, facts: MachineFacts) -> Changes:
    lines = storage.fstab_lines(spec.inventory, spec.name, spec.folders)
    yield from keep_fstab(facts, lines)
    for line in lines:
        source, path, _, options, *_ = line.split()
        yield from keep_mounted(facts, path, source, options.split(","))


MOUNTS = Subject("mounts", "mounts", plan=_plan_mounts)
