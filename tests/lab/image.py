"""The root image of a node: Debian 12 with Raspberry Pi OS Lite's packages, and a repository.

Built once and cached under a hash of all its inputs.
"""

import fcntl
import hashlib
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lab import standins
from tests.lab.commands import APART, run
from tests.lab.places import FILES, cache_folder
from tests.tables import table

SUITE = "bookworm"

ON_THE_IMAGE = (
    *(
        "systemd",
        "systemd-sysv",
        "dbus",
        "udev",
        "kmod",
        "openssh-server",
        "openssh-sftp-server",
        "sudo",
        "python3",
    ),
    *(
        "rsync",
        "iproute2",
        "iputils-ping",
        "procps",
        "psmisc",
        "netbase",
        "ca-certificates",
        "less",
        "libstdc++6",
    ),
)
"""`nfs-common` is there too, as a stand-in. `python3-venv`, `nftables` and an NFS server are not,
as on a Pi."""

IN_THE_REPOSITORY = (
    *("nftables", "python3-venv", "prometheus", "prometheus-node-exporter"),
    *("wireguard-tools", "wireguard-go"),
)
"""The packages that a deployment may install; their dependencies and the stand-ins are added."""

REPOSITORY = "var/lib/pi-repo"
SOURCES = f"deb [trusted=yes] file:/{REPOSITORY} ./\n"

DISABLED = (
    "systemd-timesyncd.service apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer"
    " e2scrub_all.timer"
)
MASKED = (
    "systemd-binfmt.service proc-sys-fs-binfmt_misc.automount systemd-modules-load.service"
    " systemd-sysctl.service modprobe@.service sys-fs-fuse-connections.mount"
    " sys-kernel-config.mount dev-hugepages.mount e2scrub_reap.service sys-kernel-debug.mount"
    " sys-kernel-tracing.mount getty@tty1.service console-getty.service"
)
"""Units that would change the host's kernel, and consoles that a node does not have."""

SETUP = f"""
set -e
printf '#!/bin/sh\\nexit 101\\n' >/usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d
printf 'Acquire::Languages "none";\\n' >/etc/apt/apt.conf.d/90lab
apt-get update -qq
cd /{REPOSITORY}
chmod 777 .
apt-get install --no-install-recommends --print-uris -qq {{wanted}} |
    sed "s/^'[^']*' \\([^_]*\\)_.*/\\1/" | xargs apt-get download -qq
chmod 755 .
rm -f /etc/apt/sources.list /etc/apt/sources.list.d/*
rm -rf /var/lib/apt/lists/*
"""
"""First half, with a route out: collects the packages of the repository."""

FINISH = f"""
set -e
apt-get update -qq
apt-get install -y -qq --no-install-recommends nfs-common
useradd --create-home --shell /bin/bash --groups adm,sudo,users,dialout,video pi
echo 'pi ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/010_pi-nopasswd
chmod 440 /etc/sudoers.d/010_pi-nopasswd
for no in PermitRootLogin PasswordAuthentication UseDNS; do echo "$no no"; done \\
    >/etc/ssh/sshd_config.d/lab.conf
systemctl disable --quiet {DISABLED} 2>/dev/null || true
systemctl mask --quiet {MASKED}
systemctl enable --quiet ssh.service
install -D -m 755 /root/board/vcgencmd /usr/bin/vcgencmd
install -D -m 644 /root/board/cmdline.txt /boot/firmware/cmdline.txt
dpkg-divert --quiet --local --rename --divert /usr/bin/timedatectl.real --add /usr/bin/timedatectl
install -m 755 /root/board/timedatectl /usr/bin/timedatectl
rm -r /root/board
install -d -o pi -g pi -m 700 /home/pi/.ssh
install -d -m 755 /srv
rm -f /etc/ssh/ssh_host_* /etc/machine-id /var/lib/dbus/machine-id
rm -f /usr/sbin/policy-rc.d /etc/resolv.conf
rm -rf /var/cache/apt/archives/*.deb /var/log/*.log /var/log/apt /tmp/* /var/tmp/*
: >/etc/machine-id
: >/etc/resolv.conf
"""
"""Second half, with the local repository as the only source."""


BOARD = FILES / "board"
"""The files that identify a Raspberry Pi, and a correct clock."""


def recipe_key() -> str:
    """The hash of all that decides the image's content, except the dates of Debian's packages."""
    digest = hashlib.sha256()
    rows = repr(table("lab/standins"))
    names = (*ON_THE_IMAGE, *IN_THE_REPOSITORY)
    parts = (SUITE, *names, SOURCES, SETUP, FINISH, standins.VERSION, rows)
    digest.update("\0".join(parts).encode())
    for file in sorted(FILES.rglob("*")):
        if file.is_file() and "node" not in file.relative_to(FILES).parts:
            digest.update(file.relative_to(FILES).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]


def image() -> Path:
    """The folder with the root image; building it takes about a minute.

    Raises:
        LabError: A step of the build failed; no incomplete image is left in the cache.
    """
    folder = cache_folder() / f"image-{recipe_key()}"
    with locked(folder):
        if not folder.exists():
            partial = folder.with_suffix(".partial")
            _remove(partial)
            try:
                _build(partial)
                partial.rename(folder)
            finally:
                _remove(partial)
    return folder


def in_root(root: Path, script: str) -> None:
    """Run a shell script inside a root folder, with /proc, in a mount namespace of its own."""
    inside = 'mount -t proc proc "$0/proc" && exec chroot "$0" /bin/sh -c "$1"'
    environment = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "LC_ALL": "C.UTF-8",
        "DEBIAN_FRONTEND": "noninteractive",
    }
    run(
        *(*APART, "sh", "-c", inside, root, script),
        environment=environment,
    )


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lets one process at a time build `folder`."""
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(root: Path) -> None:
    repository = begin(root, standins.NEEDED)
    standins.build(repository)
    standins.index(repository)
    finish(root)


def begin(root: Path, packages: Iterable[str]) -> Path:
    """Make Debian in `root`, and the folder of its own repository, which is not indexed yet."""
    run(
        *("mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(ON_THE_IMAGE)}"),
        *("--skip=cleanup/apt/lists", SUITE, root),
    )
    repository = root / REPOSITORY
    repository.mkdir(parents=True)
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
    in_root(root, SETUP.format(wanted=" ".join((*IN_THE_REPOSITORY, *packages))))
    return repository


def finish(root: Path) -> None:
    """Makes a node of it, once its repository is indexed."""
    (root / "etc/apt/sources.list").write_text(SOURCES)
    shutil.copytree(BOARD, root / "root/board")
    in_root(root, FINISH)


def _remove(folder: Path) -> None:
    if folder.exists():
        run("rm", "-rf", "--one-file-system", folder)
