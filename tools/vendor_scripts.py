"""The page's JavaScript libraries as npm publishes them.

`--check` holds the files here against the list beside them.

Without a flag they are fetched again with `npm pack`: the archive must have the integrity that npm
published for the version on the list, and the file in it the SHA-256 on the list. To take a new
version change the list and fetch.
"""

import argparse
import base64
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "cluster" / "pages" / "static" / "vendor"
LIST = "scripts.json"


@dataclass(frozen=True)
class Script:
    """One library: its archive of npm, and the two files of it that the project keeps."""

    name: str
    version: str
    licence: str
    integrity: str
    """Of the archive, as npm states it: `sha512-<base64>`."""
    member: str
    licence_member: str
    file: str
    sha256: str
    """Of the file."""

    @property
    def licence_file(self) -> str:
        """The file of its licence."""
        return f"{self.file.partition('.')[0]}.LICENSE"


def listed(folder: Path = FOLDER) -> list[Script]:
    """The libraries on the list."""
    return [Script(**entry) for entry in json.loads((folder / LIST).read_bytes())["scripts"]]


def differences(folder: Path = FOLDER) -> list[str]:
    """The differences between folder and list."""
    found = []
    scripts = listed(folder)
    for script in scripts:
        path = folder / script.file
        if path.is_file():
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            digest = "no file"
        if digest != script.sha256:
            found.append(
                f"{path}: expected SHA-256 {script.sha256} ({script.name} {script.version}), found"
                f" {digest}"
            )
        if not (folder / script.licence_file).is_file():
            found.append(f"{folder / script.licence_file}: the licence of {script.name} is missing")
    known = {LIST, *(name for script in scripts for name in (script.file, script.licence_file))}
    found += [
        f"{path}: is not on the list {LIST}"
        for path in sorted(folder.iterdir())
        if path.name not in known
    ]
    return found


def fetch(script: Script, folder: Path = FOLDER) -> None:
    """Write the script and its licence as npm has them.

    Raises ValueError if they differ from the list.
    """
    with tempfile.TemporaryDirectory() as workshop:
        wanted = f"{script.name}@{script.version}"
        subprocess.run(
            ["npm", "pack", "--silent", "--ignore-scripts", "--pack-destination", workshop, wanted],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        (archive,) = Path(workshop).glob("*.tgz")
        integrity = (
            "sha512-" + base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
        )
        if integrity != script.integrity:
            raise ValueError(
                f"{wanted}: expected an archive of {script.integrity}, got {integrity}"
            )
        with tarfile.open(archive) as opened:
            contents = {
                name: _content(opened, name) for name in (script.member, script.licence_member)
            }
    digest = hashlib.sha256(contents[script.member]).hexdigest()
    if digest != script.sha256:
        raise ValueError(
            f"{wanted}: {script.member}: expected SHA-256 {script.sha256}, got {digest}"
        )
    (folder / script.file).write_bytes(contents[script.member])
    (folder / script.licence_file).write_bytes(contents[script.licence_member])


def _content(archive: tarfile.TarFile, name: str) -> bytes:
    stream = archive.extractfile(name)
    if stream is None:
        raise ValueError(f"{name}: is no file of the archive")
    return stream.read()


def main() -> int:
    """Fetch, or with --check compare alone; 1 and a line for each difference."""
    parser = argparse.ArgumentParser(prog="python -m tools.vendor_scripts", description=__doc__)
    parser.add_argument("--check", action="store_true", help="fetch nothing")
    if not parser.parse_args().check:
        for script in listed():
            fetch(script)
            print(f"{script.file}: {script.name} {script.version}, {script.licence}")
    problems = differences()
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
