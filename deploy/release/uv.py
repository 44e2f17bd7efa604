"""uv, the one that made `.venv`."""

import subprocess
from pathlib import Path

from cluster.errors import ClusterError
from deploy.common.project import ROOT


def uv_executable() -> Path:
    """Where uv lies; it is fetched when `make .venv` did not leave it. Raises ClusterError."""
    asked = subprocess.run(
        ["sh", "tools/make_venv.sh", "--uv"], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if asked.returncode != 0:
        words = asked.stderr.strip().splitlines()
        raise ClusterError(words[-1] if words else f"tools/make_venv.sh --uv: exit code {asked.returncode}")
    return ROOT / asked.stdout.strip()
