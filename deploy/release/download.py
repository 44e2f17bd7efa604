"""Wheels for a node of another kind than this machine, fetched with pip.

pip it is because, unlike uv, it can fetch for another Python and machine; it takes the user's own index, proxy and
certificates, and checks every file against the list's hashes. What it cannot do is judge the list's markers for another
machine, nor derive an older glibc's tag from a newer one's; so it gets lines without markers, and every tag by name.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from cluster.errors import ClusterError
from deploy.release.target import Target

TEMPORARY = ".temporary-"
"""How the name of a folder begins in which pip works."""


def download(wanted: Path, folder: Path, target: Target) -> None:
    """Fetches a wheel for each line of the list `wanted` into `folder`; those that are there already stay.

    The list has no markers. Raises ClusterError when some could not be had; the others are kept.
    """
    options = [f"--platform={platform}" for platform in target.platforms()]
    options += [f"--abi={abi}" for abi in (f"cp{target.short_python.replace('.', '')}", "abi3", "none")]
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--require-hashes", "--only-binary=:all:"]
    command += ["--quiet", "--no-input", "--disable-pip-version-check", "--no-cache-dir", "--retries=2", "--timeout=30"]
    command += ["--implementation=cp", f"--python-version={target.short_python}", *options]
    # pip unpacks its downloads beside their destination: /tmp may be in memory.
    with tempfile.TemporaryDirectory(prefix=TEMPORARY, dir=folder, ignore_cleanup_errors=True) as temporary:
        asked = subprocess.run(
            [*command, f"--dest={folder}", f"--requirement={wanted}"],
            env={**os.environ, "TMPDIR": temporary},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
    if asked.returncode != 0:
        raise ClusterError(
            f"the wheels for CPython {target.short_python} on {target.machine} could not all be fetched: "
            f"{_reason(asked.stderr)}; what came is kept: run it again"
        )


def _reason(stderr: str) -> str:
    """What pip said, in one line."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    refused = [line for line in lines if "Failed to establish" in line or "Connection" in line or "resol" in line]
    if refused:
        return f"is the network there? {refused[0].removeprefix('WARNING: ')}"
    return errors[-1] if errors else lines[-1] if lines else "pip said nothing"
