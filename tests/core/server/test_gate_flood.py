"""Under a flood of connections of another account the role's own callers are answered."""

import os
import subprocess
import sys

import pytest

from core.server.probe import answers
from tests.core.server.other_account import STRANGER
from tests.core.server.processes import HANG_SECONDS, running
from tests.habits import needs

pytestmark = pytest.mark.long

FLOOD = """
import os, socket, sys, threading
uid = int(sys.argv[1])
os.setgroups([]); os.setresgid(uid, uid, uid); os.setresuid(uid, uid, uid)
def flood():
    while True:
        try:
            with socket.socket() as one:
                one.settimeout(2.0)
                one.connect(("127.0.0.1", int(sys.argv[2])))
        except OSError:
            pass
for _ in range(6):
    threading.Thread(target=flood, daemon=True).start()
print("floods", flush=True)
sys.stdin.read()
"""
OWN_CALLS = 21


def test_own_callers_are_answered_under_a_flood_of_another_account() -> None:
    needs.root("becoming another account")
    with running("worker_node", "--guard", "loopback") as role:
        with subprocess.Popen(
            [sys.executable, "-S", "-c", FLOOD, str(STRANGER), str(role.port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ},
        ) as flood:
            try:
                assert flood.stdout is not None
                assert flood.stdout.readline() == b"floods\n"
                for _ in range(OWN_CALLS):
                    assert answers("127.0.0.1", role.port, HANG_SECONDS)
                assert flood.poll() is None, "it floods to the end"
            finally:
                flood.kill()
        assert role.ask("/ready")[0] == 200
