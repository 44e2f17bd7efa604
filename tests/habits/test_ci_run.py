"""`.ci/run` takes every step, fails when one did and repeats its end: on a project of its own with short steps."""

import os
import shutil
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.habits.leaks import PROJECT

INSTALLED = ("apt-get", "chromium", "mmdebstrap", "sudo")
"""Stand-ins: nothing is installed by a test."""

MAKEFILE = """\
.PHONY: .venv check lab test
.venv:
check:
\t@echo checked
lab:
\t@echo laboured '$(ARGS)'
test:
\t@echo tested; echo "==== 3 passed, 10 skipped in 1.50s ===="
"""
BARE = """\
#!/bin/sh
[ -d "$(dirname "$1")" ] && mkdir "$1"
[ ! -e .venv ] || echo "something was made before"
shift
echo bare "$@"
echo "==== 2 passed, 1 skipped in 100.02s (0:01:40) ===="
"""
"""Stands in for `tools/bare_root.sh`, which makes a whole Debian."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with the script, a Makefile of the same targets, and the programs that the script would install."""
    (tmp_path / ".ci").mkdir()
    shutil.copy2(PROJECT / ".ci" / "run", tmp_path / ".ci" / "run")
    for name in ("tools", "tests", "bin"):
        (tmp_path / name).mkdir()
    (tmp_path / "tools" / "make_venv.sh").write_text("exit 0\n")
    (tmp_path / "tools" / "bare_root.sh").write_text(BARE)
    (tmp_path / "tools" / "bare_root.sh").chmod(0o755)
    for name in INSTALLED:
        (tmp_path / "bin" / name).write_text("#!/bin/sh\nexit 0\n")
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "bin" / "id").write_text("#!/bin/sh\necho 0\n")  # of root, who may install what is missing here
    (tmp_path / "bin" / "id").chmod(0o755)
    (tmp_path / "Makefile").write_text(MAKEFILE)
    return tmp_path


def run(project: Path) -> subprocess.CompletedProcess[str]:
    """What the script said, once it ended; TimeoutExpired if it never does."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    environ |= {"PATH": f"{project / 'bin'}:{environ['PATH']}", "TMPDIR": str(project)}
    return subprocess.run([project / ".ci" / "run"], capture_output=True, text=True, timeout=60, env=environ)


def recipe(project: Path, target: str, *commands: str) -> None:
    """Gives `target` other commands."""
    makefile = project / "Makefile"
    before, _, after = makefile.read_text().partition(f"\n{target}:\n")
    rest = after.partition("\n")[2]
    lines = "".join(f"\t@{command}\n" for command in commands)
    makefile.write_text(f"{before}\n{target}:\n{lines}{rest}")


def test_all_steps_in_order(project: Path) -> None:
    done = run(project)
    assert (done.returncode, done.stderr) == (0, "")
    words = [line.split()[0] for line in done.stdout.splitlines()]
    kept = [word for word in words if word not in ("make:", ".ci/run:")]
    assert kept == ["bare", "====", "checked", "laboured", "tested", "===="]
    assert "bare make test\n" in done.stdout
    assert done.stdout.splitlines()[-1] == "==== 3 passed, 10 skipped in 1.50s ===="
    left = [path.name for path in project.iterdir() if path.name.startswith(("tmp.", "pscluster-"))]
    assert left == [], "what the steps said and the bare root are thrown away at the end"


def test_the_long_tests_run_where_there_are_some(project: Path) -> None:
    (project / "tests" / "test_it.py").write_text("@pytest.mark.long\n")
    with (project / "Makefile").open("a") as makefile:
        makefile.write("test-long:\n\t@echo waited\n")
    assert "checked\nwaited\nlaboured" in run(project).stdout


def test_a_failed_step_ends_the_log_and_stops_no_other(project: Path) -> None:
    recipe(project, "check", "seq 1 99", "echo what went wrong", "false")
    done = run(project)
    said = done.stdout.splitlines()
    assert done.returncode == 1
    assert "tested" in said
    repeated = said[said.index(".ci/run: the end of check:") :]
    assert "what went wrong" in repeated
    assert len(repeated) == 41
    assert done.stderr.splitlines()[-1] == ".ci/run: failed: check"


@pytest.mark.parametrize(
    "closing",
    [
        "==== 3 passed, 11 skipped in 1.50s ====",
        "==== 1 failed, 3 passed in 1.50s ====",
        "==== 3 passed, 1 error in 1.50s ====",
        "==== 10 skipped in 1.50s ====",
        "no closing line",
    ],
)
@pytest.mark.parametrize("where", ["test", "bare-test"])
def test_tests_that_were_skipped_or_did_not_run_fail_it(project: Path, closing: str, where: str) -> None:
    if where == "test":
        recipe(project, "test", f"echo '{closing}'")
    else:
        (project / "tools" / "bare_root.sh").write_text(f"#!/bin/sh\necho '{closing}'\n")
    done = run(project)
    assert done.returncode == 1
    assert f".ci/run: the end of {where}:" in done.stdout
    assert "expected 0 failed and at most 10 skipped, got: " in done.stdout
    assert done.stderr.splitlines()[-1] == f".ci/run: failed: {where}"


def test_where_no_bare_root_can_be_made_the_rest_runs_and_it_fails(project: Path) -> None:
    (project / "tools" / "bare_root.sh").write_text("#!/bin/sh\necho 'bare root: needs root' >&2; exit 1\n")
    done = run(project)
    assert (done.returncode, done.stderr) == (1, ".ci/run: failed: bare-test\n")
    assert done.stdout.count("bare root: needs root") == 2
    assert "tested" in done.stdout


def test_an_orphan_holds_up_no_step(project: Path) -> None:
    recipe(project, "lab", "sleep 40 & echo $$! >orphan")
    try:
        done = run(project)
    finally:
        psutil.Process(int((project / "orphan").read_text())).kill()
    assert (done.returncode, done.stdout.splitlines()[-2]) == (0, "tested")
