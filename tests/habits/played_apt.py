"""An apt with packages that a test makes; Debian's own tools unpack them."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.habits import needs

_APT = """#!/bin/sh
while [ "$1" = -o ]; do shift 2; done
echo "$*" >>{folder}/asked
case $1 in
update) [ ! -e {folder}/offline ] || {{ echo "E: no network" >&2; exit 100; }} ;;
download) shift; for name; do cp {folder}/"$name"_1%3a2_all.deb .; done ;;
--print-uris)
    for wanted; do :; done
    [ -e {folder}/"$wanted".needs ] || {{
        echo "E: Unable to locate package $wanted" >&2
        exit 100
    }}
    read -r needed <{folder}/"$wanted".needs
    for name in "$wanted" $needed; do
        echo "'http://debian/pool/$name.deb' ${{name}}_1%3a2_all.deb 1500000 SHA256:abc"
    done ;;
esac
"""


class PlayedApt:
    """A folder with an `apt-get` to put on PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        (folder / "apt-get").write_text(_APT.format(folder=folder))
        (folder / "apt-get").chmod(0o755)
        (folder / "asked").touch()

    def package(self, name: str, files: Mapping[str, str], needed: str = "") -> None:
        """A package of set-uid executables, with its dependencies."""
        root = self.folder / "roots" / name
        (root / "DEBIAN").mkdir(parents=True)
        (root / "DEBIAN/control").write_text(
            f"Package: {name}\nVersion: 1:2\nArchitecture: all\nMaintainer: x"
            " <x@example.org>\nDescription: x\n"
        )
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
            (root / path).chmod(0o4755)
        built = self.folder / f"{name}_1%3a2_all.deb"
        subprocess.run(
            [needs.tool("dpkg-deb"), "--build", root, built], check=True, capture_output=True
        )
        (self.folder / f"{name}.needs").write_text(needed)

    def offline(self) -> None:
        """From now on no mirror answers."""
        (self.folder / "offline").touch()

    @property
    def asked(self) -> list[str]:
        """The first word of each call."""
        return [line.split()[0] for line in (self.folder / "asked").read_text().splitlines()]
