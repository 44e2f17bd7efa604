"""`python -m cluster.server.guard_probe`: whether this kernel lets a role keep other machines out of its port.

Prints one line of JSON, `{"holds": true, "line": by what means}`; `holds` is false where ports would be open, and
`line` says why. For `fab deploy check`, which asks on the node itself and does not know this room.
"""

import socket
import sys

from cluster.logs.terminal import say_json
from cluster.server.guard import GuardOutcome, guard_loopback


def probe() -> GuardOutcome:
    """Guard a port opened for this alone."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return guard_loopback(listener.getsockname()[1])


def main() -> int:
    """Probe, and print the outcome."""
    outcome = probe()
    say_json({"holds": outcome.guarded, "line": outcome.reason})
    return 0


if __name__ == "__main__":
    sys.exit(main())
