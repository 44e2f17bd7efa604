"""Commands that do root's part on files of a node, as argument lists for any connection or script. Pure.

Each carries its program: the node has the system's Python, and perhaps nothing of ours yet.
"""

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path

PYTHON = "/usr/bin/python3"
_HERE = Path(__file__).parent
_OURS = "from deploy.rooted."


@cache
def program(verbs: str, *modules: str) -> str:
    """The modules as one text for `python3 -c`; `verbs` is the name of those that it knows."""
    lines = [line for module in modules for line in (_HERE / f"{module}.py").read_text("utf-8").splitlines()]
    kept = [line for line in lines if not line.startswith(_OURS)]  # they are in the same text
    return "\n".join([*kept, f"sys.exit(run(sys.argv[1:], {verbs}))"])


def file_program() -> str:
    """The program of all commands but those for jobs."""
    return program("FILE_VERBS", "walk", "files")


def _files(verb: str, *words: str) -> list[str]:
    return [PYTHON, "-I", "-S", "-c", file_program(), verb, *words]


def _jobs(verb: str, *words: str) -> list[str]:
    return [PYTHON, "-I", "-S", "-c", program("JOB_VERBS", "walk", "files", "jobs"), verb, *words]


def make_folder(path: str, mode: int = 0o755, owner: str = "root") -> list[str]:
    """A folder with this mode and owner, and root's folders above it where they are missing."""
    return _files("folder", path, f"{mode:o}", owner)


def make_point(path: str) -> list[str]:
    """A folder to mount something at; one that is there is not looked into."""
    return _files("point", path)


def write_file(path: str, mode: int = 0o644, owner: str = "root") -> list[str]:
    """A file with what comes on stdin, whole or not at all. Its folder has to be there."""
    return _files("write", path, f"{mode:o}", owner)


def remove(path: str) -> list[str]:
    """What is at `path` goes, if anything is."""
    return _files("remove", path)


def listed(files: Iterable[tuple[str, str, int]]) -> str:
    """Name, SHA-256 and bytes of each file, as `copy` of the program reads them."""
    return json.dumps(sorted(files), separators=(",", ":"))


def copy_files(source: str, target: str, files: Iterable[tuple[str, str, int]]) -> list[str]:
    """The new folder `target` with files of `source`, which others keep: what is hashed is the copy."""
    return _files("copy", source, target, listed(files))


def new_job(jobs: str, owner: str, kept: int, first: str) -> list[str]:
    """A job's folder with the files on stdin (JSON: names and base64); of ended jobs the oldest go beyond `kept`.

    Prints its id: `first`, or with -2, -3 and so on.
    """
    return _jobs("new-job", jobs, owner, str(kept), first)


def drop_job(jobs: str, name: str) -> list[str]:
    """A job that never began goes."""
    return _jobs("drop-job", jobs, name)
