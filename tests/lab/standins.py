"""Debian packages that stand in for the kernel's NFS, which no namespace has, and the index of the local repository."""

import hashlib
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.lab.commands import run
from tests.lab.places import FILES

VERSION = "1:2.6.2-4+lab1"


@dataclass(frozen=True)
class Standin:
    """One package: where its files lie in `image_files`, by the path they get on a node."""

    name: str
    depends: str
    description: str
    files: tuple[tuple[str, str, int], ...]
    scripts: tuple[str, ...] = ()


STANDINS = (
    Standin(
        "nfs-common",
        "python3, python3-fusepy, libnfs13",
        "NFS client in user space (stands in for the kernel's)\n"
        " mount.nfs and mount.nfs4 of the emulated cluster: libnfs speaks NFS on the wire,\n"
        " FUSE shows it at the mount point. Not for machines with a kernel of their own.",
        (("nfs_client/mount_nfs.py", "sbin/mount.nfs", 0o755), ("nfs_client/mount_nfs.py", "sbin/mount.nfs4", 0o755)),
    ),
    Standin(
        "nfs-kernel-server",
        "nfs-common, python3, nfs-ganesha, nfs-ganesha-vfs",
        "NFS server in user space (stands in for the kernel's)\n"
        " exportfs, rpc.nfsd and nfs-server.service of the emulated cluster, in front of\n"
        " nfs-ganesha. Not for machines with a kernel of their own.",
        (
            ("nfs_server/exportfs.py", "usr/sbin/exportfs", 0o755),
            ("nfs_server/rpc_nfsd.py", "usr/sbin/rpc.nfsd", 0o755),
            ("nfs_server/nfs-server.service", "lib/systemd/system/nfs-server.service", 0o644),
            ("nfs_server/nfs.conf", "etc/nfs.conf", 0o644),
            ("nfs_server/exports", "etc/exports", 0o644),
        ),
        ("postinst", "prerm", "postrm"),
    ),
)

NEEDED = ("python3-fusepy", "libnfs13", "nfs-ganesha", "nfs-ganesha-vfs")
"""Debian's own packages that the stand-ins depend on."""


def build(repository: Path) -> None:
    """Writes the stand-ins' .deb files into the folder."""
    for standin in STANDINS:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            root.chmod(0o755)
            for source, target, mode in standin.files:
                path = root / target
                path.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(FILES / source, path)
                path.chmod(mode)
            control = root / "DEBIAN"
            control.mkdir()
            (control / "control").write_text(
                f"Package: {standin.name}\nVersion: {VERSION}\nArchitecture: all\nSection: net\nPriority: optional\n"
                f"Maintainer: pscluster's lab <root@localhost>\nDepends: {standin.depends}\n"
                f"Description: {standin.description}\n"
            )
            configuration = [f"/{target}" for _, target, _ in standin.files if target.startswith("etc/")]
            (control / "conffiles").write_text("".join(f"{path}\n" for path in configuration))
            for script in standin.scripts:
                shutil.copy(FILES / "nfs_server" / script, control / script)
                (control / script).chmod(0o755)
            run(
                "dpkg-deb", "--root-owner-group", "--build", "-Znone", root, repository / f"{standin.name}_lab1_all.deb"
            )


def index(repository: Path) -> None:
    """Writes the folder's `Packages` file, which apt reads."""
    entries = []
    for package in sorted(repository.glob("*.deb")):
        fields = run("dpkg-deb", "--field", package).stdout.rstrip("\n")
        content = package.read_bytes()
        entries.append(
            f"{fields}\nFilename: ./{package.name}\nSize: {len(content)}\nSHA256: {hashlib.sha256(content).hexdigest()}\n"
        )
    (repository / "Packages").write_text("\n".join(entries))
