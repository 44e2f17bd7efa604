"""The disk with the environment of the lock on it, installed once by the product's own script."""

import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

from deploy.release import requirements
from deploy.release.scripts import install_environment
from deploy.release.wheelhouse import CACHE, Wheelhouse, make_wheelhouse
from tests.lab.commands import APART, LabError, complaint, run
from tests.lab.image import locked
from tests.lab.places import cache_folder
from tests.lab_kernel.disk import disk, root_folder

PYTHON = "3.11"
"""Debian 12's."""


def wheels_folder() -> Path:
    """The folder of wheelhouses: `$PSCLUSTER_WHEELS`, or that of a deployment."""
    return Path(os.environ.get("PSCLUSTER_WHEELS") or CACHE)


def wheelhouse(machine: str) -> Wheelhouse:
    """The wheels of the lock for a machine like `x86_64`, downloaded if need be."""
    return make_wheelhouse(requirements.committed(), PYTHON, machine, cache=wheels_folder())


def seeded_disk() -> Path:
    """The image of `disk.disk` with the environment, as a deployment would have left it."""
    wheels = wheelhouse(platform.machine())
    folder = cache_folder() / f"seed-{wheels.key}"
    with locked(folder):
        if not folder.exists():
            _install(wheels, folder)
    return disk(folder)


def _install(wheels: Wheelhouse, folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=cache_folder()) as work:
        partial = Path(work, "seed")
        (partial / "opt/pscluster").mkdir(parents=True)
        shutil.copytree(wheels.folder, Path(work, "wheels"), copy_function=os.link)
        script = install_environment(wheels, "/mnt/wheels")
        # The machine's own Python in the machine's own root; its files go to the seed's folder.
        inside = (
            'mount -t tmpfs none "$0/mnt" && mkdir "$0/mnt/wheels" && mount --bind "$1/wheels"'
            ' "$0/mnt/wheels" && mount -t proc proc "$0/proc" && mkdir -p "$0/opt/pscluster" &&'
            ' mount --bind "$1/seed/opt/pscluster" "$0/opt/pscluster" && exec chroot "$0" sh -s'
        )
        done = subprocess.run(
            [*APART, "sh", "-c", inside, str(root_folder()), work],
            input=script,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise LabError(complaint(["chroot"], done.returncode, done.stderr or done.stdout))
        (partial / "opt/pscluster/.lock").unlink(missing_ok=True)
        run("mv", partial, folder)
