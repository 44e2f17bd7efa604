"""The environment of this checkout as a seed, installed once by the product's own script."""

import platform
import shutil
from pathlib import Path

from deploy.release.requirements import committed, environment_key
from deploy.release.scripts import install_environment
from deploy.release.wheelhouse import make_wheelhouse
from tests.lab.commands import run
from tests.lab.seed import build_seed

PYTHON = "3.11"
"""Debian 12's."""


def environment_seed() -> Path:
    """The layer with /opt/pscluster/environments/<key>; building it takes a minute."""
    return build_seed(_install, environment_key(committed(), PYTHON, platform.machine()))


def _install(root: Path) -> None:
    wheelhouse = make_wheelhouse(committed(), PYTHON, platform.machine())
    wheels = root / "var/tmp/wheels"
    shutil.copytree(wheelhouse.folder, wheels)
    script = install_environment(wheelhouse, "/var/tmp/wheels")
    run("chroot", root, "/bin/sh", "-s", stdin=script)
    shutil.rmtree(wheels)
