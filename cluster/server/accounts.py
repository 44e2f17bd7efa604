"""The account that a role runs as: its name, giving up root's rights, and ending with the parent process."""

import contextlib
import ctypes
import os
import pwd
import signal
from pathlib import Path

from cluster.errors import ClusterError

ROLES_ACCOUNT = 64219
"""The uid and gid of a local cluster's roles where root starts them: a TensorFlow server executes what it gets.

No account has this number. It lies in systemd's dynamic range (61184 to 65519), which no tool gives to people, and no
daemon shares it."""

PR_SET_PDEATHSIG, PR_GET_PDEATHSIG, PR_SET_NO_NEW_PRIVS = 1, 2, 38  # linux/prctl.h
CAP_SETGID, CAP_SETUID = 6, 7  # linux/capability.h


def account_name(uid: int) -> str:
    """Name and uid, or the uid alone where the account has no name."""
    with contextlib.suppress(KeyError):
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    return f"uid {uid}"


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process, even a stopped one, when the *thread* that started it ends (prctl(2)).

    Start roles from a thread that lives as long as they do. Survives execve. Raises ClusterError when the kernel
    refuses, or when the process `parent` is no longer the parent.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0) != 0:
        raise ClusterError(f"--die-with-parent: prctl failed: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:
        raise ClusterError(f"--die-with-parent: the parent process {parent} ended while this one started")


def why_root(proc: Path = Path("/proc/self")) -> str | None:
    """Why root cannot become ROLES_ACCOUNT here, and the remedy; None where it can."""
    try:
        holder = pwd.getpwuid(ROLES_ACCOUNT).pw_name
    except KeyError:
        pass
    else:
        return f"uid {ROLES_ACCOUNT} is taken by account {holder}: give that account another uid"
    held = int(_said(proc / "status")["CapEff"][0], 16)
    if not (held >> CAP_SETUID & 1 and held >> CAP_SETGID & 1):
        return "root may not change its account here: grant CAP_SETUID and CAP_SETGID"
    if not all(_maps((proc / name).read_text()) for name in ("uid_map", "gid_map")):
        return f"this user namespace has no uid and gid {ROLES_ACCOUNT}: map 65536 of each"
    if (proc / "setgroups").exists() and (proc / "setgroups").read_text().strip() == "deny":
        return "this user namespace forbids setgroups: map its groups with newgidmap"
    return None


def account_for_roles() -> int | None:
    """The account for the roles of a local cluster that this process starts; None for its own account."""
    return ROLES_ACCOUNT if os.geteuid() == 0 and why_root() is None else None


def forbid_new_privileges() -> None:
    """Keep this process and threads that it starts from now on from gaining privileges through execve.

    Raises ClusterError.
    """
    _prctl(PR_SET_NO_NEW_PRIVS, 1)


def become(account: int) -> None:
    """Become this account and its group with every thread, without other groups and without capabilities.

    Call it in the main thread. A process that dies with its parent still does. Raises ClusterError where that fails;
    some privileges may be gone by then.
    """
    dies_with_parent, parent = _dies_with_parent(), os.getppid()
    try:
        os.setgroups([])
        os.setresgid(account, account, account)
        os.setresuid(account, account, account)
    except OSError as problem:
        raise ClusterError(f"root cannot become uid {account}: {problem.strerror}") from None
    if dies_with_parent:
        die_with_parent(parent)  # the kernel forgets it with every change of account
    left = [task.name for task in Path("/proc/self/task").iterdir() if not _is_unprivileged(task / "status", account)]
    if left:
        raise ClusterError(f"threads {', '.join(left)} are still more than uid {account}")


def _is_unprivileged(status: Path, account: int) -> bool:
    try:
        said = _said(status)
    except (FileNotFoundError, ProcessLookupError):  # the thread has ended
        return True
    wanted = [str(account)] * 4
    none = all(int(said[name][0], 16) == 0 for name in ("CapPrm", "CapEff", "CapAmb"))
    return said["Uid"] == wanted and said["Gid"] == wanted and not said["Groups"] and none


def _said(status: Path) -> dict[str, list[str]]:
    return {key: value.split() for key, _, value in (line.partition(":") for line in status.read_text().splitlines())}


def _maps(lines: str) -> bool:
    ranges = (tuple(map(int, line.split())) for line in lines.splitlines())
    return any(first <= ROLES_ACCOUNT < first + count for first, _, count in ranges)


def _dies_with_parent() -> bool:
    number = ctypes.c_int(0)
    _prctl(PR_GET_PDEATHSIG, ctypes.addressof(number))
    return number.value != 0


def _prctl(what: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(what, *map(ctypes.c_ulong, (value, 0, 0, 0))) != 0:
        raise ClusterError(f"prctl {what} failed: {os.strerror(ctypes.get_errno())}")
