"""Debian packages in place of the kernel's NFS, which no namespace has, and their index."""

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
    swallows: tuple[str, ...] = ()
    """Packages of Debian whose programs it includes, so that their services never appear on a node.
    """


STANDINS = (
    Standin(
        "nfs-common",
        "python3, python3-fusepy",
        "NFS client in user space (stands in for the kernel's)\n"
        " mount.nfs and mount.nfs4 of the emulated cluster: real NFSv4 on the wire,\n"
        " FUSE at the mount point. Not for machines with a kernel of their own.",
        (
            ("nfs_client/nfs4.py", "usr/lib/nfs-standin/nfs4.py", 0o644),
            ("nfs_client/nfs4.json", "usr/lib/nfs-standin/nfs4.json", 0o644),
            ("nfs_client/mount.nfs", "sbin/mount.nfs", 0o755),
            ("nfs_client/mount.nfs", "sbin/mount.nfs4", 0o755),
        ),
    ),
    Standin(
        "nfs-kernel-server",
        "nfs-common, python3",
        "NFS server in user space (stands in for the kernel's)\n"
        " exportfs, rpc.nfsd and nfs-server.service of the emulated cluster, in front of\n"
        " nfs-ganesha. Not for machines with a kernel of their own.",
        (
            ("nfs_server/exportfs", "usr/sbin/exportfs", 0o755),
            ("nfs_server/rpc.nfsd", "usr/sbin/rpc.nfsd", 0o755),
            ("nfs_server/nfs-server.service", "lib/systemd/system/nfs-server.service", 0o644),
            ("nfs_server/nfs.conf", "etc/nfs.conf", 0o644),
            ("nfs_server/exports", "etc/exports", 0o644),
        ),
        ("postinst", "prerm", "postrm"),
        ("nfs-ganesha", "nfs-ganesha-vfs"),
    ),
)

NEEDED = ("python3-fusepy", "nfs-ganesha", "nfs-ganesha-vfs")
"""Debian's own packages that the stand-ins depend on, or include."""

UNWANTED = ("nfs-common", "rpcbind")
"""Dependencies of ganesha's package that a server with version 4 alone does not need."""


def build(repository: Path) -> None:
    """Write the stand-ins' .deb files, and remove the packages that they replace."""
    for standin in STANDINS:
        with tempfile.TemporaryDirectory() as folder:
            _build(standin, Path(folder), repository)
    for name in ("nfs-ganesha", "nfs-ganesha-vfs", *UNWANTED):
        for package in repository.glob(f"{name}_[0-9]*.deb"):
            package.unlink()


def _build(standin: Standin, root: Path, repository: Path) -> None:
    root.chmod(0o755)
    depends = [standin.depends]
    for name in standin.swallows:
        (package,) = repository.glob(f"{name}_*.deb")
        run("dpkg-deb", "--extract", package, root)
        wanted = run("dpkg-deb", "--field", package, "Depends").stdout.strip().split(", ")
        depends += [
            depend for depend in wanted if depend.split()[0] not in (*UNWANTED, *standin.swallows)
        ]
    for folder in ("etc", "lib", "usr/share", "var"):
        shutil.rmtree(root / folder, ignore_errors=True)
    for source, target, mode in standin.files:
        path = root / target
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(FILES / source, path)
        path.chmod(mode)
    control = root / "DEBIAN"
    control.mkdir()
    architecture = run("dpkg", "--print-architecture").stdout.strip()
    (control / "control").write_text(
        f"Package: {standin.name}\nVersion: {VERSION}\nArchitecture: {architecture}\n"
        "Section: net\nPriority: optional\nMaintainer: pscluster's lab <root@localhost>\n"
        f"Depends: {', '.join(depends)}\nDescription: {standin.description}\n"
    )
    configuration = [f"/{target}" for _, target, _ in standin.files if target.startswith("etc/")]
    (control / "conffiles").write_text("".join(f"{path}\n" for path in configuration))
    for script in standin.scripts:
        shutil.copy(FILES / "nfs_server" / script, control / script)
        (control / script).chmod(0o755)
    run(
        "dpkg-deb",
        "--root-owner-group",
        "--build",
        "-Znone",
        root,
        repository / f"{standin.name}_lab_all.deb",
    )


def index(repository: Path) -> None:
    """Writes the folder's `Packages` file, which apt reads."""
    entries = []
    for package in sorted(repository.glob("*.deb")):
        fields = run("dpkg-deb", "--field", package).stdout.rstrip("\n")
        content = package.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        entries.append(
            f"{fields}\nFilename: ./{package.name}\nSize: {len(content)}\nSHA256: {digest}\n"
        )
    (repository / "Packages").write_text("\n".join(entries))
