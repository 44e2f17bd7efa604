"""Environments installed once and kept as read-only layers: most nodes install nothing.

A seeded node finds /opt/pscluster/environments/<key> on its card at its first boot, as after an
earlier deployment.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lab.commands import LabError, run
from tests.lab.image import image, locked
from tests.lab.places import cache_folder

ENVIRONMENTS = "opt/pscluster/environments"


def seed_folder(key: str) -> Path:
    """The path of an environment's layer, which may not exist yet."""
    if not re.fullmatch(r"[A-Za-z0-9._-]+", key):
        raise LabError(
            f"environment key {key!r}: expected letters, digits, dots, dashes and underscores"
        )
    return cache_folder() / f"seed-{key}"


def build_seed(build: Callable[[Path], None], key: str) -> Path:
    """The layer of an environment, built if it is not cached.

    `build` gets a root folder, that of the image with /proc, /dev and this machine's network, and
    leaves /opt/pscluster/environments/<key> in it, which is all that is kept.

    Raises:
        LabError: It left no such folder.
    """
    folder = seed_folder(key)
    with locked(folder):
        if not folder.exists():
            with _root(folder.with_suffix(".build")) as (root, upper):
                build(root)
                _keep(upper, key, folder)
    return folder


def _keep(upper: Path, key: str, folder: Path) -> None:
    source = upper / ENVIRONMENTS / key
    if not source.is_dir():
        raise LabError(
            f"no /{ENVIRONMENTS}/{key} was written to {upper}: expected an environment there"
        )
    partial = folder.with_suffix(".partial")
    run("rm", "-rf", partial)
    (partial / ENVIRONMENTS).mkdir(parents=True)
    for made in (partial, *(partial / ENVIRONMENTS).relative_to(partial).parents):
        (partial / made).chmod(0o755)
    run("mv", source, partial / ENVIRONMENTS / key)
    partial.rename(folder)


@contextmanager
def _root(work: Path) -> Iterator[tuple[Path, Path]]:
    """A root folder over the image, and the folder that collects its changes."""
    root = work / "root"
    upper = work / "upper"
    run("rm", "-rf", "--one-file-system", work)
    for folder in (root, upper, work / "work"):
        folder.mkdir(parents=True)
    upper.chmod(0o755)
    try:
        layers = f"lowerdir={image()},upperdir={upper},workdir={work / 'work'}"
        run("mount", "-t", "overlay", "seed", "-o", layers, root)
        run("mount", "-t", "proc", "proc", root / "proc")
        run("mount", "--rbind", "/dev", root / "dev")
        run("mount", "--make-rslave", root / "dev")
        run("mount", "--bind", "/etc/resolv.conf", root / "etc/resolv.conf")
        yield root, upper
    finally:
        run("umount", "--recursive", "--lazy", root, check=False)
        run("rm", "-rf", "--one-file-system", work)
