"""Commands that change a node's files as root, as argument lists for any connection or script.

Pure.

Each command carries its program, because a new node has only the system's Python.
"""

import ast
import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path

PYTHON = "/usr/bin/python3"
_HERE = Path(__file__).parent
_OURS = "deploy.rooted."


@cache
def program(verbs: str, *modules: str) -> str:
    """Return the modules as one text for `python3 -c`; `verbs` names the mapping of its verbs."""
    texts = [
        _without_our_imports((_HERE / f"{module}.py").read_text("utf-8")) for module in modules
    ]
    return "\n".join([*texts, f"sys.exit(run(sys.argv[1:], {verbs}))"])


def _without_our_imports(source: str) -> str:
    """Leave out the imports of modules that the same program holds."""
    lines = source.splitlines()
    for statement in reversed(ast.parse(source).body):
        if isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith(_OURS):
            del lines[statement.lineno - 1 : statement.end_lineno]
    return "\n".join(lines)


def file_program() -> str:
    """The program of all commands except those for jobs."""
    return program("FILE_VERBS", "files")


def _files(verb: str, *arguments: str) -> list[str]:
    return [PYTHON, "-I", "-S", "-c", file_program(), verb, *arguments]


def _jobs(verb: str, *arguments: str) -> list[str]:
    return [PYTHON, "-I", "-S", "-c", program("JOB_VERBS", "files", "jobs"), verb, *arguments]


def make_folder(path: str, mode: int = 0o755, owner: str = "root") -> list[str]:
    """Make a folder with this mode and owner, and missing folders above it for root."""
    return _files("folder", path, f"{mode:o}", owner)


def give_folder(path: str, mode: int, owner: str) -> list[str]:
    """Make a folder as `make_folder` does, and give the account all that is in it."""
    return _files("give", path, f"{mode:o}", owner)


def make_point(path: str) -> list[str]:
    """Make a mount point; an existing folder is not opened."""
    return _files("point", path)


def write_file(
    path: str, mode: int = 0o644, owner: str = "root", size_bytes: int | str = ""
) -> list[str]:
    """Write stdin to a file atomically, if it has the bytes where these are. Its folder exists."""
    return _files("write", path, f"{mode:o}", owner, f"{size_bytes}")


def remove(path: str) -> list[str]:
    """Remove `path`, if it exists."""
    return _files("remove", path)


def file_list(files: Iterable[tuple[str, str, int]]) -> str:
    """Name, SHA-256 and bytes of each file, as the program's `copy` and `new-job` read them."""
    return json.dumps(sorted(files), separators=(",", ":"))


def new_job(jobs: str, owner: str, retained_jobs: int, first: str, listed: str) -> list[str]:
    """Make a job's folder with the files on stdin, one after the other, as `file_list` names them.

    It keeps the newest `retained_jobs` ended jobs.

    Prints its id: `first`, or with -2, -3 and so on.
    """
    return _jobs("new-job", jobs, owner, str(retained_jobs), first, listed)


def drop_job(jobs: str, name: str) -> list[str]:
    """Remove a job that never started."""
    return _jobs("drop-job", jobs, name)
