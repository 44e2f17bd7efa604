"""`.ci/run` takes every step, fails when one did and repeats its end: on a project of its own with
short steps."""

import os
import re
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.habits.leaks import PROJECT
from tests.hang import HANG_SECONDS
from tests.ran import ran
from tests.tables import table

INSTALLED = ("apt-get", "chromium", "mmdebstrap", "sudo")
"""Stand-ins: nothing is installed by a test."""

STYLE = ("lint", "lengths", "imports", "habits", "lock")
CHECKS = ("types", "rules", "docs", "kernels-check", "kernels-sanitize", "kernels-emulated")
MAKEFILE = f"""\
.venv:
{"".join(f"{name}:{chr(10)}{chr(9)}@echo {name}{chr(10)}" for name in (*STYLE, *CHECKS))}\
kernels-are-proven:
\t@true
stories:
\t@echo told
long:
\t@echo waited
lab:
\t@echo laboured
test:
\t@echo tested; echo "==== 3 passed, 10 skipped in 1.50s ===="
"""
BARE = """\
#!/bin/sh
mkdir -p "$1"
[ ! -e .venv ] || echo "something was made before"
shift
[ "$1" = true ] && exit
echo bare "$BARE_USER" "$@"
[ "$2" = run ] || echo "==== 2 passed, 1 skipped in 100.02s (0:01:40) ===="
"""
"""Stands in for `tools/bare_root.sh`, which makes a whole Debian."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with the script, a Makefile of the same targets, and the programs that the script
    would install."""
    (tmp_path / ".ci").mkdir()
    shutil.copy2(PROJECT / ".ci" / "run", tmp_path / ".ci" / "run")
    (tmp_path / "tests").mkdir()
    # `id` says root, who may install what is missing here.
    scripts = {f"bin/{name}": "#!/bin/sh\nexit 0\n" for name in INSTALLED}
    scripts |= {"bin/id": "#!/bin/sh\necho 0\n", "tools/bare_root.sh": BARE}
    scripts["tools/make_venv.sh"] = "exit 0\n"
    for name, text in scripts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "Makefile").write_text(MAKEFILE)
    return tmp_path


def commit(project: Path) -> None:
    """Commit all files: the script works in a clone."""
    identity = ("-c", "user.name=a", "-c", "user.email=a@localhost")
    ran("git", "-C", project, "init", "-q")
    ran("git", "-C", project, "add", "--all", "--force")
    ran("git", "-C", project, *identity, "commit", "-q", "-m", "all")


def run(project: Path) -> subprocess.CompletedProcess[str]:
    """What the script said, once it ended; TimeoutExpired if it never does."""
    commit(project)
    environ = {
        name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))
    }
    environ |= {"PATH": f"{project / 'bin'}:{environ['PATH']}", "TMPDIR": str(project)}
    environ["GIT_TEMPLATE_DIR"] = ""  # an unpacked git has none
    script = project / ".ci" / "run"
    return subprocess.run(
        [script], capture_output=True, text=True, timeout=HANG_SECONDS, env=environ
    )


def recipe(project: Path, target: str, *commands: str) -> None:
    """Gives `target` other commands."""
    makefile = project / "Makefile"
    before, _, after = makefile.read_text().partition(f"\n{target}:\n")
    rest = after.partition("\n")[2]
    lines = "".join(f"\t@{command}\n" for command in commands)
    makefile.write_text(f"{before}\n{target}:\n{lines}{rest}")


CASES = table("habits/ci_runs")


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_step_runs_and_what_failed_is_said(project: Path, case: dict[str, Any]) -> None:
    for target, commands in case.get("recipes", {}).items():
        recipe(project, target, *commands)
    for name, text in case.get("files", {}).items():
        (project / name).write_text(text)
    if "bare" in case:
        (project / "tools" / "bare_root.sh").write_text(f"#!/bin/sh\n{case['bare']}\n")
    done = run(project)
    if "failed" in case:
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1] == f".ci/run: failed: {case['failed']}"
    else:
        assert (done.returncode, done.stderr) == (0, "")
    assert [text for text in case.get("has", ()) if text not in done.stdout] == [], done.stdout
    times = case.get("times", {})
    assert {text: done.stdout.count(text) for text in times} == times
    lines = done.stdout.splitlines()
    if "words" in case:
        words = [line.split()[0] for line in lines if not line.startswith((".ci/run:", "make"))]
        for group in case["words"]:
            assert sorted(words[: len(group)]) == sorted(group)
            del words[: len(group)]
        assert words == []
    if "repeated" in case:
        assert (
            len(lines) - lines.index(f".ci/run: the end of {case['failed']}:") == case["repeated"]
        )
    assert not [text for text in case.get("lacks", ()) if text in done.stdout], done.stdout
    leftovers = [*project.glob("tmp.*"), *project.glob("pscluster*")]
    assert leftovers == [], "outputs, clone and bare root are thrown away at the end"


def test_it_works_in_a_clone_that_nobody_else_may_enter(project: Path) -> None:
    place = project / "place"
    recipe(project, "stories", f"pwd >'{place}'; ls -ld .. >>'{place}'")
    assert run(project).returncode == 0
    clone, mode = place.read_text().splitlines()
    assert re.fullmatch(rf"{re.escape(str(project))}/pscluster home\.\w+/a clone", clone)
    assert mode.startswith("drwx------")


def test_an_orphan_holds_up_no_step(project: Path) -> None:
    orphan = project / "orphan"
    recipe(project, "lab", f"sleep 400 & echo $$! >'{orphan}'; echo laboured")
    try:
        done = run(project)
    finally:
        with suppress(psutil.NoSuchProcess):  # it ended with its lane
            psutil.Process(int(orphan.read_text())).kill()
    assert done.returncode == 0
    assert "laboured" in done.stdout.splitlines()
