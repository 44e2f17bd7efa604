"""A member's graphs reach nothing but the role's own, whatever TensorFlow's ops can do."""

import json
from pathlib import Path

import pytest

from core.cage import landlock
from core.control.own_state import CREDENTIALS_VARIABLE
from tests.core.server.processes import python, running
from tests.habits import needs

pytestmark = pytest.mark.long
LEAST = 20
SECRET = b"the secret words of another"


def tried(target: str, tmp_path: Path) -> dict[str, bool]:
    own = tmp_path / "prepared"
    own.mkdir(exist_ok=True)
    (own / "windows").write_bytes(SECRET)
    done = python(
        *("-m", "tests.core.server.graph_attacks"),
        *(target, str(tmp_path / "there"), str(own / "windows")),
    )
    assert done.returncode == 0, done.stderr
    got: dict[str, bool] = json.loads(done.stdout)
    assert got.pop("its own")
    return got


def test_without_a_cage_each_graph_does_what_it_is_for(tmp_path: Path) -> None:
    got = tried("", tmp_path)
    assert [name for name, done in got.items() if not done] == []
    assert len(got) >= LEAST - 1, "this process is no server to connect from"


@pytest.mark.parametrize("module", ["worker_node", "ps_node"])
def test_no_graph_of_a_member_gets_outside_of_a_role(tmp_path: Path, module: str) -> None:
    needs.cage(landlock.SCOPED)
    cage = ("--reads", str(tmp_path / "prepared"), "--reach", "9")
    (tmp_path / "prepared").mkdir()
    with running(module, "--guard", "none", *cage) as role:
        got = tried(f"grpc://127.0.0.1:{role.port}", tmp_path)
        assert role.ask("/ready")[0] == 200
    assert [name for name, done in got.items() if done] == []
    assert len(got) >= LEAST


READ = """
import sys
import tensorflow as tf
with tf.Graph().as_default():
    wanted = tf.raw_ops.ReadFile(filename=sys.argv[2])
    with tf.compat.v1.Session(sys.argv[1]) as session:
        try:
            print(session.run(wanted))
        except tf.errors.OpError as error:
            print(type(error).__name__)
"""


def test_no_graph_reads_the_token_that_a_pod_has_as_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The role has read it before: who shows a key made of it may restart the role."""
    token = "0123456789abcdef" * 4
    (tmp_path / "token").write_text(token)
    cage = ("--reads", str(tmp_path / "prepared"), "--coordinator", "token")
    (tmp_path / "prepared").mkdir()
    monkeypatch.setenv(CREDENTIALS_VARIABLE, str(tmp_path))
    with running("worker_node", "--guard", "none", *cage) as role:
        target = f"grpc://127.0.0.1:{role.port}"
        for path in (tmp_path / "token", Path(f"/proc/{role.process.pid}/root{tmp_path}/token")):
            assert "PermissionDenied" in python("-c", READ, target, str(path)).stdout
        seen = python("-c", READ, target, f"/proc/{role.process.pid}/environ").stdout
        assert token not in seen
