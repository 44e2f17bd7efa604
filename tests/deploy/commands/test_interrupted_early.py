"""Ctrl-C in the first second of `fab`, while Python starts and Fabric is imported: nothing to read,
and 130."""

import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from core.inventory.templates import local_inventory
from deploy.common.project import ROOT
from pscluster.version import own_version
from tests.deploy.typed import PROGRAM, Fab
from tests.hang import HANG_SECONDS
from tests.ran import ran
from tools.write_fab import written

SOME = (0.03, 0.2, 0.5)
MANY = [number * 0.05 for number in range(20)]


def interrupted_after(seconds: float, folder: Path) -> tuple[int, str]:
    """Exit code, and what standard error has."""
    with subprocess.Popen(
        [*PROGRAM, "deploy", "status"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        time.sleep(seconds)  # the moment itself is what is tried
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=HANG_SECONDS)
    return process.returncode, said


@pytest.mark.parametrize(
    "moments", [SOME, pytest.param(MANY, marks=pytest.mark.long)], ids=["some", "twenty"]
)
def test_nothing_but_130(moments: list[float], tmp_path: Path) -> None:
    (tmp_path / "inventory.yaml").write_text(local_inventory(workers=1))
    for seconds in moments:
        code, said = interrupted_after(seconds, tmp_path)
        # A shell shows 130 for a process that SIGINT ended too: the first moment may hit `env`, the
        # last ones Python's end. A command that was done by then has its own code: 3, nothing runs.
        assert code in (130, -signal.SIGINT, 3), (seconds, code, said)
        assert said == "", (seconds, code, said)


def test_an_ignored_interrupt_stays_ignored(tmp_path: Path) -> None:
    """Under `nohup`, or behind a shell's `&`."""
    (tmp_path / "inventory.yaml").write_text(local_inventory(workers=1))
    status = shlex.join([*PROGRAM, "deploy", "status"])
    script = f"trap '' INT; {status} & sleep 0.2; kill -INT $!; wait $!"
    assert ran("sh", "-c", script, code=3, folder=tmp_path).stderr == ""


SCRIPT = (
    "#!/a/python\n# -*- coding: utf-8 -*-\nimport sys\nfrom fabric.main import"
    " program\nsys.exit(program.run())\n"
)


@pytest.mark.parametrize("can_block", [True, False])
@pytest.mark.parametrize("folder", ["/a folder", "/o'neil"])
def test_the_script_is_python_in_any_folder(folder: str, can_block: bool) -> None:
    made = written(SCRIPT, Path(folder, ".venv/bin/python"), "import signal\n", can_block=can_block)
    compile(made, "fab", "exec")
    assert made.index("import signal") < made.index("from fabric.main")
    assert (made.splitlines()[0] == "#!/a/python") == ("'" in folder)


@pytest.mark.parametrize("flag", ["--version", "-V", "--help", "-h"])
def test_the_script_shows_this_project(flag: str, tmp_path: Path) -> None:
    script = tmp_path / ".venv" / "bin" / "fab"
    script.parent.mkdir(parents=True)
    begins = (ROOT / "tools" / "fab_begins.py").read_text(encoding="utf-8")
    ends = "print('arguments:', sys.argv[1:])\n"
    script.write_text(written(f"#!/a\nimport sys\n{ends}", script, begins, can_block=False))
    for folder in ("core", "pscluster"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    shown = ran(sys.executable, str(script), flag, folder=tmp_path).stdout
    if flag in ("--version", "-V"):
        assert shown == f"pscluster {own_version()}\n"
    else:  # as `fab` alone, which the door answers
        assert shown == "arguments: []\n"


def test_fab_alone_shows_the_commands(fab: Fab) -> None:
    shown = fab("").says("Usage: fab COMMAND", "deploy start").stdout
    assert "--prompt-for-login-password" not in shown


def test_a_script_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="import sys"):
        written("#!/bin/sh\nexec true\n", Path("/python"), "", can_block=True)
