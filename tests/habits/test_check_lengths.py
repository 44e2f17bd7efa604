"""Modules stay small."""

import subprocess
from pathlib import Path

from tests.habits import needs
from tools.check_lengths import too_long


def test_names_the_module_that_is_too_long(tmp_path: Path) -> None:
    subprocess.run([needs.tool("git"), "init", "--quiet", str(tmp_path)], check=True)
    (tmp_path / "short.py").write_text("\n" * 400)
    (tmp_path / "long.py").write_text("\n" * 401)
    (tmp_path / "long.md").write_text("\n" * 401)
    (tmp_path / "built.py").write_text("\n" * 401)
    (tmp_path / ".gitignore").write_text("built.py\n")
    found = too_long(tmp_path)
    assert [line.split(",")[0] for line in found] == ["long.py: 401 lines"]
