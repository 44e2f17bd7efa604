"""The disk that every machine starts from: the lab's Debian 12, with the kernel's own NFS.

Cached as one ext4 image below the lab's cache. A machine keeps its changes in a file of its own.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path

from tests.lab.commands import APART, run
from tests.lab.image import (
    BOARD,
    FINISH,
    IN_THE_REPOSITORY,
    MASKED,
    ON_THE_IMAGE,
    REPOSITORY,
    SETUP,
    SOURCES,
    SUITE,
    begin,
    finish,
    in_root,
    locked,
)
from tests.lab.places import cache_folder

KERNEL = "/usr/bin/linux.uml"
MODULES = Path("/usr/lib/uml/modules")
SIZE_MIB = 6 * 1024
NFS = ("nfs-common", "nfs-kernel-server")
"""The real ones. As on a Pi, the first is there and the second may be installed."""

IDENTITY = """\
[Unit]
Description=name, address and keys of this machine, a tar archive on its second disk
DefaultDependencies=no
After=systemd-remount-fs.service systemd-udevd.service
Before=local-fs.target systemd-networkd.service sysinit.target
Wants=network-pre.target
ConditionPathExists=/dev/ubdb

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c 'tar -xf /dev/ubdb -C / && hostname -F /etc/hostname'

[Install]
WantedBy=sysinit.target
"""

INDEX = f"""
set -e
cd /{REPOSITORY}
for package in *.deb; do
    dpkg-deb -f "$package"
    printf 'Filename: ./%s\\nSize: %s\\n' "$package" "$(stat -c %s "$package")"
    printf 'SHA256: %s\\n\\n' "$(sha256sum <"$package" | cut -d' ' -f1)"
done >Packages
"""

FINISH_KERNEL = f"""
set -e
systemctl unmask --quiet {MASKED}
systemctl mask --quiet getty@tty1.service console-getty.service serial-getty@ttyS0.service
systemctl enable --quiet identity.service systemd-networkd.service
rm -f /etc/fstab
"""
"""The lab's image masks them because they would change the host's kernel; these machines have their
own."""


def recipe_key() -> str:
    """Hash of everything that decides the disk's content, except the dates of Debian's packages."""
    digest = hashlib.sha256()
    names = (*ON_THE_IMAGE, *IN_THE_REPOSITORY, *NFS)
    parts = (SUITE, *names, SOURCES, SETUP, FINISH, FINISH_KERNEL, IDENTITY, INDEX)
    digest.update("\0".join((*parts, _kernel_version())).encode())
    for file in sorted(BOARD.iterdir()):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]


def root_folder() -> Path:
    """The folder that disks are made of; building it takes about a minute.

    Raises:
        LabError: A step of the build failed; no incomplete folder is left in the cache.
    """
    folder = cache_folder() / f"kernel-root-{recipe_key()}"
    with locked(folder):
        if not folder.exists():
            _build(folder, _fill_root)
    return folder


def disk(environment: Path) -> Path:
    """The image with the environment of a folder that looks like a node's root."""
    root = root_folder()
    image = cache_folder() / f"kernel-disk-{recipe_key()}-{environment.name}.ext4"
    with locked(image):
        if not image.exists():
            _build(image, lambda partial: _make_disk(partial, root, environment))
    return image


def _kernel_version() -> str:
    return sorted(folder.name for folder in MODULES.iterdir())[-1]


def _build(target: Path, fill: Callable[[Path], None]) -> None:
    partial = target.with_name(f"{target.name}.partial")
    run("rm", "-rf", "--one-file-system", partial)
    try:
        fill(partial)
        partial.rename(target)
    finally:
        run("rm", "-rf", "--one-file-system", partial)


def _fill_root(root: Path) -> None:
    begin(root, NFS)
    in_root(root, INDEX)
    finish(root)
    (root / "etc/systemd/system/identity.service").write_text(IDENTITY)
    in_root(root, FINISH_KERNEL)
    (root / "lib/modules").mkdir(exist_ok=True)
    run("cp", "-a", MODULES / _kernel_version(), root / "lib/modules")


def _make_disk(image: Path, root: Path, environment: Path) -> None:
    with image.open("wb") as file:
        file.truncate(SIZE_MIB << 20)
    # An overlay shows both trees as one, in a mount namespace that ends with the command.
    layers = f"lowerdir={environment}:{root}"
    script = 'mount -t overlay disk -o "$1" /mnt && exec mkfs.ext4 -q -F -m 0 -d /mnt "$2"'
    run(*APART, "sh", "-c", script, "sh", layers, image)
