"""Puts tools/fab_begins.py into `.venv/bin/fab`.

Ctrl-C while Python starts and Fabric is imported shows nothing.

Python alone cannot do it: Fabric's script imports Fabric, for a second, before it reads our
fabfile.
"""

import subprocess
import sys
from pathlib import Path

BLOCKED = "env --block-signal=INT"
"""A command of coreutils 8.31 and later: Ctrl-C waits until our first lines take it."""


def written(script: str, python: Path, begins: str, *, can_block: bool) -> str:
    """The script with our beginning. For a path with a quote the first line stays as it was."""
    first, newline, rest = script.partition("\nimport sys\n")
    if not newline:
        raise ValueError("expected Fabric's script with `import sys`")
    if "'" not in str(python):
        if can_block:
            words = f"{BLOCKED} "
        else:
            words = ""
        first = f"#!/bin/sh\n'''exec' {words}'{python}' \"$0\" \"$@\"\n' '''"
    return f"{first}\n{begins}import sys\n{rest}"


def main() -> int:
    """Write it once; the exit code."""
    root = Path(__file__).resolve().parent.parent
    script = root / ".venv" / "bin" / "fab"
    begins = (root / "tools" / "fab_begins.py").read_text(encoding="utf-8")
    before = script.read_text(encoding="utf-8")
    if begins in before:
        return 0
    can_block = (
        subprocess.run([*BLOCKED.split(), "true"], capture_output=True, check=False).returncode == 0
    )
    python = root / ".venv" / "bin" / "python"
    partial = script.with_name("fab.partial")
    partial.write_text(written(before, python, begins, can_block=can_block), encoding="utf-8")
    partial.chmod(0o755)
    partial.replace(script)
    return 0


if __name__ == "__main__":
    sys.exit(main())
