"""Commands of a played machine that would reach beyond its folder.

Each keeps what it changes in files below the folder: units and packages in `state.json`, mounts in
`proc`, accounts in `etc/passwd`, the loaded firewall in `run/nft`, owners in `owners`. So a script
of a deployment is judged by what its commands leave, as on a machine. They run without site
packages; the name of a command is that of the link to the program which calls `main`.
"""

from __future__ import annotations

import os
import sys

from tests.deploy.converge.play_systemd import (
    ROOT,
    State,
    mount,
    of_files,
    read,
    systemctl,
    umount,
    write,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

SERVICES = {
    "nfs-kernel-server": "nfs-server.service",
    "prometheus-node-exporter": "prometheus-node-exporter.service",
    "prometheus": "prometheus.service",
}
"""The units that packages bring and start."""
EXPORTER_PORT = "9100"


def apt_get(words: Sequence[str]) -> int:
    if "install" not in words:
        return 0
    state = State()
    names = [word for word in words[words.index("install") + 1 :] if not word.startswith("-")]
    for name in names:
        if "-s" in words:
            print(f"Inst {name} (1.0 Debian)")
            continue
        state.packages[name] = "1.0"
        if name in SERVICES:
            unit = state.units.setdefault(SERVICES[name], {"active": "inactive", "read": ""})
            unit["read"] = of_files(SERVICES[name])
            if unit.setdefault("enabled", "enabled") != "masked":
                state.start(SERVICES[name])
    state.keep()
    return 0


def dpkg_query(words: Sequence[str]) -> int:
    form, *names = words[words.index("-f") + 1 :]
    for name, version in State().packages.items():
        if not names or name in names:
            line = form.replace("${Package}", name).replace("${Version}", version)
            print(line.replace("${db:Status-Abbrev}", "ii ").replace("\\n", "\n"), end="")
    return 0


def ss(words: Sequence[str]) -> int:
    import re

    listening = {"22": ("sshd", 700)}
    for name, pid in State().running():
        if name.startswith("prometheus-node"):
            listening[EXPORTER_PORT] = ("node_exporter", pid)
        text = read(f"etc/systemd/system/{name}")
        for port in re.findall(r" --(?:metrics-)?port (\d+)", text):
            listening[port] = ("python", pid)
    for port, (program, pid) in listening.items():
        print(f'LISTEN 0 128 *:{port} *:* users:(("{program}",pid={pid},fd=3))')
    return 0


def owner_file(descriptor: int) -> str:
    return f"owners/{os.fstat(descriptor).st_ino}"


def tar(_words: Sequence[str]) -> int:
    """The archive of the listed files, with the node's paths and owners."""
    import io
    import tarfile

    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as archive:
        for name in filter(None, sys.stdin.read().split("\0")):
            member = archive.gettarinfo(name, name.removeprefix(ROOT))
            member.name = name.removeprefix(ROOT) or "/"
            member.uname = read(f"owners/{os.lstat(name).st_ino}") or "root"
            member.gname = member.uname
            content = b""
            if member.isreg():
                with open(name, "rb") as file:
                    content = file.read().replace(ROOT.encode(), b"")
                member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return 0


def python3(words: Sequence[str]) -> int:
    """The node's Python: root's program with the accounts of the folder, and short answers."""
    if "-m" in words:
        if "zipfile" in words:
            import zipfile

            with zipfile.ZipFile(words[-2]) as archive:
                archive.extractall(words[-1])
        if "recognise.service.certificates" in words:
            signed = words[words.index("recognise.service.certificates") + 2 :]
            write("etc/pscluster/service/signed", " ".join(("4102444800", *signed)) + "\n")
        return 0
    program = words[words.index("-c") + 1]
    if "FILE_VERBS" in program:
        import pwd

        account = {"root": (os.geteuid(), os.getegid())}
        for line in read("etc/passwd").splitlines():
            name, _, uid, gid, *_ = line.split(":")
            account[name] = (int(uid), int(gid))
        names = {uid: name for name, (uid, _) in account.items()}

        def fchown(fd: int, uid: int, gid: int) -> None:
            write(owner_file(fd), names[uid])

        def getpwnam(name: str) -> Any:
            uid, gid = account[name]
            return pwd.struct_passwd((name, "x", uid, gid, "", "/", "/bin/sh"))

        import grp

        os.fchown = fchown
        pwd.getpwnam = getpwnam
        grp.getgrgid = lambda id: grp.struct_group(("group", "x", id, []))  # noqa: A006
        sys.argv = ["-c", *words[words.index("-c") + 2 :]]
        exec(program, {"__name__": "__main__"})  # it ends with sys.exit
    elif "platform.machine" in program:
        print("3.11 aarch64 64")
    elif "struct.calcsize" in program:
        print("3.11.2 64")
    else:
        print("ready")  # the service answers at once
    return 0


COMMANDS = {
    "apt-get": apt_get,
    "dpkg-query": dpkg_query,
    "mount": mount,
    "python3": python3,
    "ss": ss,
    "systemctl": systemctl,
    "tar": tar,
    "umount": umount,
}


def main() -> None:
    """Do what the command of this name does."""
    sys.exit(COMMANDS[os.path.basename(sys.argv[0])](sys.argv[1:]))
