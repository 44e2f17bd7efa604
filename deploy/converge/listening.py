"""Whether a unit's own process listens on a port: programs for the Python of a node. Pure."""

from deploy.common.command_line import quoted
from deploy.rooted.commands import PYTHON

OWNER = """\
import os, subprocess
def main_pid(unit):
    asked = ["systemctl", "show", "--value", "-p", "MainPID", unit]
    return subprocess.run(asked, stdout=subprocess.PIPE, text=True).stdout.strip()
def owns(pid, port):
    try:
        files = f"/proc/{int(pid)}/fd"
        held = {os.readlink(f"{files}/{one}") for one in os.listdir(files)}
    except (OSError, ValueError):
        return False
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(table, encoding="ascii") as lines:
            for fields in map(str.split, list(lines)[1:]):
                listens = fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port
                if listens and f"socket:[{fields[9]}]" in held:
                    return True
    return False
"""
"""Python that defines `main_pid` and `owns`.

It compares sockets by their inode: what `ss` prints of a process is the name that it gave itself.
"""
_WAIT = """\
import sys, time
unit, port = sys.argv[1:]
for _ in range(50):
    if owns(main_pid(unit), int(port)):
        sys.exit()
    time.sleep(0.2)
said = ["journalctl", "-q", "-o", "cat", "--no-pager", "-n", "8", "-u", unit]
subprocess.run(said, stdout=sys.stderr)
sys.exit(1)
"""


def until_it_listens(unit: str, port: int) -> str:
    """Return shell that waits until a unit's process listens on its port, and fails otherwise.

    systemd counts a unit of Type=simple as up as soon as its process exists.
    """
    return quoted(PYTHON, "-I", "-S", "-c", OWNER + _WAIT, unit, port)
