"""What leaves a question means no, in one line, and nothing was done."""

import subprocess
from pathlib import Path

import pytest

from tests.deploy.pseudo_terminal import on_a_terminal
from tests.deploy.three_nodes import THREE
from tests.deploy.typed import PROGRAM
from tests.hang import HANG_SECONDS

ASKED = "remove everything of pscluster, packages that it added too from 3 nodes?"


@pytest.fixture(autouse=True)
def inventory(tmp_path: Path) -> None:
    (tmp_path / "inventory.yaml").write_text(THREE.format(user="pi", port=22, key="none"))


@pytest.mark.parametrize(
    "keys", [b"\x04", b"\x03", b"n\n", b"\xff\n"], ids=["end of input", "Ctrl-C", "n", "no text"]
)
def test_what_leaves_a_question_means_no(keys: bytes, tmp_path: Path) -> None:
    with on_a_terminal([*PROGRAM, "deploy", "reset"], tmp_path, columns=300) as terminal:
        terminal.until(r"\[y/N\] ")
        assert terminal.end_after(keys) == 2, terminal.text
    _, question, *rest = [row for row in terminal.rows if row]
    assert question.startswith(f"{ASKED} [y/N] ")
    assert rest == ["nothing was removed"]


def test_without_a_standard_input_the_flag_is_named(tmp_path: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&-', "sh", *PROGRAM, "deploy", "reset"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
    )
    assert (done.returncode, done.stderr.splitlines()[-1:]) == (
        2,
        ["nothing was removed: `--yes` removes without a question"],
    )
