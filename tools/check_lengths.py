"""Refuses modules of more than 400 lines: by then a module owns more than one thing."""

import subprocess
import sys
from pathlib import Path

LIMIT_LINES = 400


def too_long(root: Path, limit_lines: int = LIMIT_LINES) -> list[str]:
    """One line for each Python module of the repository at `root` that git does not ignore and that is too long."""
    listing = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.py"],
        check=True,
        capture_output=True,
        text=True,
    )
    problems = []
    for name in sorted(set(listing.stdout.split("\0")) - {""}):
        path = root / name
        lines = path.read_text(encoding="utf-8").count("\n") if path.exists() else 0
        if lines > limit_lines:
            problems.append(f"{name}: {lines} lines, at most {limit_lines}: move what has a name of its own out of it")
    return problems


if __name__ == "__main__":
    found = too_long(Path(__file__).resolve().parents[1])
    print("\n".join(found), file=sys.stderr, end="\n" if found else "")
    sys.exit(1 if found else 0)
