"""`python -m cluster.server.guard_probe`: whether this kernel lets a role keep others out of its port.

Prints one line of JSON, `{"machines": ..., "accounts": ..., "privileges": ...}`: for other machines and for other
accounts of this one each `{"holds": true, "line": by what means}`; `holds` is false where ports would be open to them,
and `line` says why. For `privileges` it is false where roles would run as root.
For `fab deploy check` and `start`, which ask on the node itself and do not know this room.
"""

import os
import socket
import sys

from cluster.logs.terminal import say_json
from cluster.server.accounts import account_name
from cluster.server.guard import GuardOutcome
from cluster.server.port_guard import PortGuard
from cluster.server.unprivileged import ROLES_ACCOUNT, why_root


def probe() -> GuardOutcome:
    """Guard a port opened for this alone."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        guard = PortGuard(port, "127.0.0.1")
        listener.listen()
        guard.put_up()
        return guard.outcome


def _privileges() -> dict[str, object]:
    if os.geteuid() != 0:
        return {"holds": True, "line": f"roles run as {account_name(os.geteuid())}"}
    obstacle = why_root()
    if obstacle is None:
        return {"holds": True, "line": f"roles run as {account_name(ROLES_ACCOUNT)}, jobs as {account_name(0)}"}
    return {"holds": False, "line": f"roles run as {account_name(0)}: {obstacle}"}


def main() -> int:
    """Probe, and print the outcome."""
    outcome, own, privileges = probe(), account_name(os.geteuid()), _privileges()
    answer = {
        "machines": {"holds": outcome.guarded, "line": outcome.reason},
        "accounts": {"holds": outcome.every_account is None, "line": f"as {own}: {outcome.every_account}"},
        "privileges": privileges,
    }
    if outcome.every_account is None:
        answer["accounts"]["line"] = str(privileges["line"])
    say_json(answer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
