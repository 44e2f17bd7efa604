"""The container image of the Containerfile: `make image`.

Needs root and buildah, and mmdebstrap without --base.

Its base is a Debian 12 that mmdebstrap makes with the mirrors of this machine, because many
networks reach no registry.
"""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from core import __version__

PROJECT = Path(__file__).resolve().parent.parent
STORE = PROJECT / ".cache" / "containers"
TAG = "localhost/pscluster:latest"
SUITE = "bookworm"
PACKAGES = ("buildah", "mmdebstrap")
OF_THIS_MACHINE = ("/etc/pip.conf", "/etc/ssl/certs")
"""What the build reads of this machine, and does not keep: a mirror of packages, and the
certificates for it."""
_DEBIAN = f"localhost/debian-{SUITE}"


class ImageError(Exception):
    """The image cannot be built here, in one line."""


@dataclass(frozen=True)
class Store:
    """Where images lie: a folder of the project's, or with None that of the machine."""

    folder: Path | None = STORE

    @property
    def flags(self) -> tuple[str, ...]:
        """For buildah and podman."""
        if self.folder is None:
            return ()
        return (
            "--root",
            f"{self.folder}/images",
            "--runroot",
            f"{self.folder}/run",
            "--storage-driver",
            "overlay",
        )


def why_not(programs: Sequence[str] = PACKAGES) -> str:
    """The reason why no image can be built here, in one line; empty where one can."""
    if os.geteuid() != 0:
        return "the image needs root: its base is made with mmdebstrap and its layers are overlays"
    lacking = [name for name in programs if shutil.which(name) is None]
    if lacking:
        return (
            f"the image needs {', '.join(lacking)}: apt-get install --no-install-recommends"
            f" {' '.join(lacking)}"
        )
    return ""


def build(store: Store, tag: str = TAG, base: str | None = None) -> None:
    """Build the image in the store. What did not change since the last time is not built again.

    Raises ImageError.
    """
    if reason := why_not(PACKAGES if base is None else PACKAGES[:1]):
        raise ImageError(reason)
    if base is not None and "@sha256:" not in base:
        raise ImageError(f"--base: expected NAME@sha256:DIGEST, a name alone moves, got {base}")
    base = base or _debian(store)
    volumes = [
        word
        for path in OF_THIS_MACHINE
        if Path(path).exists()
        for word in ("--volume", f"{path}:{path}:ro")
    ]
    _run(
        *(
            "buildah",
            *store.flags,
            "build",
            "--layers",
            "--isolation",
            "chroot",
            "--network",
            "host",
            *volumes,
        ),
        *(
            "--build-arg",
            f"BASE={base}",
            "--build-arg",
            f"VERSION={__version__}",
            "--file",
            str(PROJECT / "Containerfile"),
        ),
        *("--ignorefile", str(PROJECT / ".containerignore"), "--tag", tag, str(PROJECT)),
    )


def save(store: Store, tag: str, file: Path) -> None:
    """Write the image as an archive that `podman load` and `k3s ctr images import` read.

    Raises ImageError.
    """
    _run("buildah", *store.flags, "push", "--quiet", tag, f"docker-archive:{file.absolute()}:{tag}")


def size(store: Store, tag: str = TAG) -> str:
    """Of the image's layers, unpacked, such as `1.95 GB`. Raises ImageError."""
    return _run(
        "buildah", *store.flags, "images", "--noheading", "--format", "{{.Size}}", tag
    ).strip()


def _debian(store: Store) -> str:
    """The base, made where the store has none."""
    there = subprocess.run(
        ["buildah", *store.flags, "inspect", "--type", "image", _DEBIAN], capture_output=True
    )
    if there.returncode == 0:
        return _DEBIAN
    folder = store.folder or STORE
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / f"{SUITE}.tar"
    try:
        _run(
            "mmdebstrap",
            "--quiet",
            "--mode=root",
            "--variant=minbase",
            "--include=ca-certificates",
            SUITE,
            str(archive),
        )
        container = _run("buildah", *store.flags, "from", "scratch").strip()
        _run("buildah", *store.flags, "add", "--quiet", container, str(archive), "/")
        _run("buildah", *store.flags, "commit", "--quiet", "--rm", container, _DEBIAN)
    finally:
        archive.unlink(missing_ok=True)
    return _DEBIAN


def _run(*words: str) -> str:
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise ImageError(f"{' '.join(words[:1])}: {last}")
    return done.stdout


def main(arguments: Sequence[str]) -> int:
    """Build, and save where asked to."""
    parser = argparse.ArgumentParser(prog="python -m tools.build_image", description=__doc__)
    parser.add_argument(
        "--base",
        help="a Debian 12 image, e.g. docker.io/library/debian@sha256:...; else one is made",
    )
    parser.add_argument("--tag", default=TAG, help=f"name of the image; {TAG}")
    parser.add_argument(
        "--save",
        type=Path,
        metavar="FILE",
        help="write it as an archive too, for `k3s ctr images import`",
    )
    parser.add_argument(
        "--store", type=Path, metavar="FOLDER", help="keep it there, not in the machine's own store"
    )
    given = parser.parse_args(arguments)
    store = Store(given.store)
    try:
        build(store, given.tag, given.base)
        if given.save is not None:
            save(store, given.tag, given.save)
    except ImageError as problem:
        print(problem, file=sys.stderr)
        return 1
    if given.save is None:
        where = ""
    else:
        where = f", saved in {given.save}"
    print(f"{given.tag}: {size(store, given.tag)} unpacked{where}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
