"""A small process that behaves like a role: `play_role.py SCRIPT`.

The first word of the file SCRIPT says how.

ready: reports readiness and waits. silent: waits without reporting. deaf: ready, and ignores
SIGTERM. exit CODE: prints one line and ends. Read at every start, so that a test can change how the
next run goes.
"""

import os
import signal
import socket
import sys
from pathlib import Path


def report_ready() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.connect(os.environ["NOTIFY_SOCKET"])
        notify.send(b"READY=1\nSTATUS=serving")


def main() -> None:
    how, *arguments = Path(sys.argv[1]).read_text().split()
    print(f"role {os.getpid()} plays {how}", flush=True)
    if how == "exit":
        print(f"this role cannot work, says code {arguments[0]}", flush=True)
        sys.exit(int(arguments[0]))
    if how == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if how != "silent":
        report_ready()
    while True:
        signal.pause()


main()
