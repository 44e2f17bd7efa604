"""Debian packages in place of the kernel's NFS, which no namespace has, and their index."""

import hashlib
import shutil
import tempfile
from pathlib import Path
from typing import Any

from tests.lab.commands import run
from tests.lab.places import FILES
from tests.tables import table

VERSION = "1:2.6.2-4+lab1"


NEEDED = ("python3-fusepy", "nfs-ganesha", "nfs-ganesha-vfs")
"""Debian's own packages that the stand-ins depend on, or include."""

UNWANTED = ("nfs-common", "rpcbind")
"""Dependencies of ganesha's package that a server with version 4 alone does not need."""


def build(repository: Path) -> None:
    """Write the stand-ins' .deb files, and remove the packages that they replace."""
    for standin in table("lab/standins"):
        with tempfile.TemporaryDirectory() as folder:
            _build(standin, Path(folder), repository)
    for name in ("nfs-ganesha", "nfs-ganesha-vfs", *UNWANTED):
        for package in repository.glob(f"{name}_[0-9]*.deb"):
            package.unlink()


def _build(standin: dict[str, Any], root: Path, repository: Path) -> None:
    root.chmod(0o755)
    depends = [standin["depends"]]
    for name in standin["swallows"]:
        (package,) = repository.glob(f"{name}_*.deb")
        run("dpkg-deb", "--extract", package, root)
        wanted = run("dpkg-deb", "--field", package, "Depends").stdout.strip().split(", ")
        depends += [
            depend
            for depend in wanted
            if depend.split()[0] not in (*UNWANTED, *standin["swallows"])
        ]
    for folder in ("etc", "lib", "usr/share", "var"):
        shutil.rmtree(root / folder, ignore_errors=True)
    for source, target, mode in standin["files"]:
        path = root / target
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(FILES / source, path)
        path.chmod(mode)
    control = root / "DEBIAN"
    control.mkdir()
    architecture = run("dpkg", "--print-architecture").stdout.strip()
    (control / "control").write_text(
        f"Package: {standin['name']}\nVersion: {VERSION}\nArchitecture: {architecture}\n"
        "Section: net\nPriority: optional\nMaintainer: pscluster's lab <root@localhost>\n"
        f"Depends: {', '.join(depends)}\nDescription: {standin['description']}\n"
    )
    configuration = [f"/{target}" for _, target, _ in standin["files"] if target.startswith("etc/")]
    (control / "conffiles").write_text("".join(f"{path}\n" for path in configuration))
    for script in standin["scripts"]:
        shutil.copy(FILES / "nfs_server" / script, control / script)
        (control / script).chmod(0o755)
    run(
        "dpkg-deb",
        "--root-owner-group",
        "--build",
        "-Znone",
        root,
        repository / f"{standin['name']}_lab_all.deb",
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
