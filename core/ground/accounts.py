"""The accounts that processes run as, the loss of root's rights, an end with the parent."""

import contextlib
import ctypes
import os
import pwd
import signal
from pathlib import Path

from core.cage.landlock import prctl
from core.ground.errors import ClusterError

ROLES_ACCOUNT = 64219
"""The uid and gid of a local cluster's roles where root starts them: a TensorFlow server executes
what it gets.

No account has this number. It lies in systemd's dynamic range (61184 to 65519), which no tool gives
to people, and no daemon shares it."""
MODELS_ACCOUNT = 64220
"""The uid and gid of what computes with models of others where root serves them."""

# linux/prctl.h
PR_SET_PDEATHSIG = 1
PR_GET_PDEATHSIG = 2
# linux/capability.h
CAP_SETGID = 6
CAP_SETUID = 7


def account_name(uid: int) -> str:
    """Name and uid, or the uid alone where the account has no name."""
    with contextlib.suppress(KeyError):
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    return f"uid {uid}"


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the *thread* that started it ends (prctl(2)).

    Even a stopped process is killed.

    Start roles from a thread that lives as long as they do. Survives execve. Raises ClusterError
    when the kernel refuses, or when the process `parent` is no longer the parent.
    """
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        raise ClusterError(
            f"--die-with-parent: the parent process {parent} ended while this one started"
        )


def why_root(proc: Path = Path("/proc/self"), account: int = ROLES_ACCOUNT) -> str | None:
    """Why root cannot become `account` here, and the remedy; None where it can."""
    try:
        holder = pwd.getpwuid(account).pw_name
    except KeyError:
        pass
    else:
        return f"uid {account} is taken by account {holder}: give that account another uid"
    capabilities = int(_status_fields(proc / "status")["CapEff"][0], 16)
    if not (capabilities >> CAP_SETUID & 1 and capabilities >> CAP_SETGID & 1):
        return "root may not change its account here: grant CAP_SETUID and CAP_SETGID"
    if not all(_maps((proc / name).read_text(), account) for name in ("uid_map", "gid_map")):
        return f"this user namespace has no uid and gid {account}: map 65536 of each"
    if (proc / "setgroups").exists() and (proc / "setgroups").read_text().strip() == "deny":
        return "this user namespace forbids setgroups: map its groups with newgidmap"
    return None


def account_for_roles() -> int | None:
    """Return the account of roles of a local cluster; None for this process's own."""
    if os.geteuid() == 0 and why_root() is None:
        return ROLES_ACCOUNT
    return None


def become(account: int) -> None:
    """Become this account and its group with every thread.

    No other group and no capability is left.

    Call it in the main thread. A process that dies with its parent still does. Raises ClusterError
    where that fails; some privileges may be gone by then.
    """
    dies_with_parent = _dies_with_parent()
    parent = os.getppid()
    try:
        os.setgroups([])
        os.setresgid(account, account, account)
        os.setresuid(account, account, account)
    except OSError as problem:
        raise ClusterError(f"root cannot become uid {account}: {problem.strerror}") from None
    if dies_with_parent:
        die_with_parent(parent)  # the kernel forgets it with every change of account
    privileged_threads = [
        task.name
        for task in Path("/proc/self/task").iterdir()
        if not _is_unprivileged(task / "status", account)
    ]
    if privileged_threads:
        raise ClusterError(
            f"threads {', '.join(privileged_threads)} are still more than uid {account}"
        )


def _is_unprivileged(status: Path, account: int) -> bool:
    try:
        fields = _status_fields(status)
    except (FileNotFoundError, ProcessLookupError):  # the thread has ended
        return True
    expected_ids = [str(account)] * 4
    none = all(int(fields[name][0], 16) == 0 for name in ("CapPrm", "CapEff", "CapAmb"))
    return (
        fields["Uid"] == expected_ids
        and fields["Gid"] == expected_ids
        and not fields["Groups"]
        and none
    )


def _status_fields(status: Path) -> dict[str, list[str]]:
    return {
        key: value.split()
        for key, _, value in (line.partition(":") for line in status.read_text().splitlines())
    }


def _maps(lines: str, account: int) -> bool:
    ranges = (tuple(map(int, line.split())) for line in lines.splitlines())
    return any(first <= account < first + count for first, _, count in ranges)


def _dies_with_parent() -> bool:
    number = ctypes.c_int(0)
    _prctl(PR_GET_PDEATHSIG, ctypes.addressof(number))
    return number.value != 0


def _prctl(what: int, value: int) -> None:
    try:
        prctl(what, value)
    except OSError as problem:
        raise ClusterError(f"prctl {what} failed: {problem.strerror}") from None
