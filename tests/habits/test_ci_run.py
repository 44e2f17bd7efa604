"""`.ci/run` takes every step, fails when one did and repeats its end: on a project of its own with
short steps."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from tests.habits.leaks import PROJECT

INSTALLED = ("apt-get", "chromium", "mmdebstrap", "sudo")
"""Stand-ins: nothing is installed by a test."""

MAKEFILE = """\
.PHONY: .venv check kernels-check kernels-sanitize kernels-emulated lab test
.venv:
check:
\t@echo checked
kernels-check kernels-sanitize kernels-emulated:
\t@echo $@
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


def run(project: Path) -> subprocess.CompletedProcess[str]:
    """What the script said, once it ended; TimeoutExpired if it never does."""
    environ = {
        name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))
    }
    environ |= {"PATH": f"{project / 'bin'}:{environ['PATH']}", "TMPDIR": str(project)}
    script = project / ".ci" / "run"
    return subprocess.run([script], capture_output=True, text=True, timeout=60, env=environ)


def recipe(project: Path, target: str, *commands: str) -> None:
    """Gives `target` other commands."""
    makefile = project / "Makefile"
    before, _, after = makefile.read_text().partition(f"\n{target}:\n")
    rest = after.partition("\n")[2]
    lines = "".join(f"\t@{command}\n" for command in commands)
    makefile.write_text(f"{before}\n{target}:\n{lines}{rest}")


CASES = yaml.safe_load(Path(__file__).with_name("ci_runs.yaml").read_text(encoding="utf-8"))


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
    said = done.stdout.splitlines()
    if "words" in case:
        words = [line.split()[0] for line in said]
        assert [word for word in words if word not in ("make:", ".ci/run:")] == case["words"]
    if "repeated" in case:
        assert len(said) - said.index(f".ci/run: the end of {case['failed']}:") == case["repeated"]
    assert said[-1] == case.get("last", said[-1])
    left = [*project.glob("tmp.*"), *project.glob("pscluster-*")]
    assert left == [], "what the steps said and the bare root are thrown away at the end"


def test_an_orphan_holds_up_no_step(project: Path) -> None:
    recipe(project, "lab", "sleep 40 & echo $$! >orphan")
    try:
        done = run(project)
    finally:
        psutil.Process(int((project / "orphan").read_text())).kill()
    assert (done.returncode, done.stdout.splitlines()[-2]) == (0, "tested")
