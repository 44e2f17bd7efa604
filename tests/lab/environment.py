"""The environment of this checkout as a read-only layer, installed by the product's own script.

A seeded node finds /opt/pscluster/environments/<key> on its card at its first boot, as after an
earlier deployment: most nodes install nothing.
"""

import platform
import tempfile
from pathlib import Path

from deploy.release.requirements import committed, environment_key
from deploy.release.scripts import install_environment
from deploy.release.wheelhouse import make_wheelhouse
from tests.lab.commands import APART, run
from tests.lab.image import image, locked
from tests.lab.places import cache_folder

PYTHON = "3.11"
"""Debian 12's."""
ENVIRONMENTS = "opt/pscluster/environments"
INSIDE = f"""
set -e
umask 022
cd "$0"
mkdir root upper work
mount -t overlay seed -o "lowerdir=$1,upperdir=upper,workdir=work" root
mount -t proc proc root/proc
mount --rbind /dev root/dev
mount --bind /etc/resolv.conf root/etc/resolv.conf
mount --bind "$2" root/mnt
chroot root sh -s
mkdir -p seed/{ENVIRONMENTS}
mv "upper/{ENVIRONMENTS}/$3" seed/{ENVIRONMENTS}
"""
"""Runs the script in an image with the network of this machine, and keeps the environment alone."""


def environment_seed() -> Path:
    """The layer with the environment; building it takes a minute.

    Raises:
        LabError: It could not be installed.
    """
    key = environment_key(committed(), PYTHON, platform.machine())
    folder = cache_folder() / f"seed-{key}"
    with locked(folder):
        if not folder.exists():
            wheels = make_wheelhouse(committed(), PYTHON, platform.machine())
            with tempfile.TemporaryDirectory(dir=cache_folder()) as work:
                words = ("sh", "-c", INSIDE, work, image(), wheels.folder, key)
                run(*APART, *words, stdin=install_environment(wheels, "/mnt"))
                run("mv", Path(work, "seed"), folder)
    return folder
