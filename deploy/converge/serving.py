"""The recognition service of a node: restarted, and waited for until it answers again.

Who restarts several goes from one node to the next, so that clients find a service at any time.
"""

from typing import TYPE_CHECKING, Literal

from cluster.errors import ClusterError
from deploy.cluster.connector import Connector
from deploy.common.command_line import quoted
from deploy.converge.resources import SERVICE_HINT, Running
from deploy.converge.systemd import by_hand
from deploy.render.units import SERVICE_DATA, SERVICE_UNIT

if TYPE_CHECKING:
    from cluster.inventory import Inventory

READY_SECONDS = 120.0
"""From the start to the first answer: a Raspberry Pi 3 imports and opens a model in about 20."""
SPARE_SECONDS = 60.0
"""For the end of the old process, and for the connection."""

Verb = Literal["restart", "wait"]

SCRIPT = b"""\
import http.client, os, ssl, subprocess, sys, time
verb, unit, host, port, scheme, pointer, seconds, steady_seconds = sys.argv[1:]
def systemctl(*words):
    return subprocess.run(["systemctl", *words], stdout=subprocess.PIPE, text=True)
def failed(words):
    journal = ["journalctl", "-q", "-o", "cat", "--no-pager", "-n", "3", "-u", unit]
    print(subprocess.run(journal, stdout=subprocess.PIPE, text=True).stdout.strip(), words, sep="\\n", file=sys.stderr)
    sys.exit(1)
def answers():
    if scheme == "https":  # the node asks itself, and sends no secret
        connection = http.client.HTTPSConnection(host, int(port), timeout=5, context=ssl._create_unverified_context())
    else:
        connection = http.client.HTTPConnection(host, int(port), timeout=5)
    try:
        connection.request("GET", "/v2/health/ready")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
if verb == "restart" and systemctl("restart", unit).returncode:
    failed("systemd does not start it")
now = since = time.monotonic()
end, pids = now + float(seconds), []
while now < end:
    if answers():
        sys.exit(print("ready"))
    pid = systemctl("show", "--value", "-p", "MainPID", unit).stdout.strip()
    if pid not in ("", "0", *pids[-1:]):
        pids, since = [*pids, pid], now
    if len(pids) > 3:
        failed("it ends again and again")
    if pids and pid == pids[-1] and not os.path.exists(pointer) and now - since >= float(steady_seconds):
        sys.exit(print("waiting"))  # for the first promotion, with its port closed
    time.sleep(0.25)
    now = time.monotonic()
failed(f"no answer at {scheme}://{host}:{port}/v2/health/ready within {float(seconds):g} s")
"""
"""For the node's own Python, with `words_of`. It prints `ready` or `waiting`."""
STEADY_SECONDS = 5.0
"""A process without a promoted version that lived so long waits for one: a wrong setting ends it earlier."""


def words_of(verb: Verb, inventory: "Inventory", node: str, seconds: float = READY_SECONDS) -> list[str]:
    """The words of SCRIPT: `restart` waits too, `wait` does that alone."""
    service = inventory.service
    scheme = "https" if service.tls or service.certificate is not None else "http"
    pointer = f"{SERVICE_DATA}/models/{service.model}/current.json"
    address = inventory.hosts[node], str(service.port)
    return [verb, SERVICE_UNIT, *address, scheme, pointer, f"{seconds:g}", f"{STEADY_SECONDS:g}"]


def waits(inventory: "Inventory", node: str) -> str:
    """A line of shell that ends when the service which systemd has just started answers, or fails with the reason."""
    return quoted("python3", "-c", SCRIPT.decode(), *words_of("wait", inventory, node)) + " >/dev/null"


def running_service(inventory: "Inventory", node: str, path: str, text: str, release: str) -> Running:
    """The unit of this file and text that runs from this release; its start ends when the service answers."""
    return Running(SERVICE_UNIT, path, text, release, hint=SERVICE_HINT, until=waits(inventory, node))


def restart_service(inventory: "Inventory", node: Connector) -> str:
    """Restart the service of one node: `ready`, or `waiting` for its first promotion. Raises ClusterError."""
    words = words_of("restart", inventory, node.name)
    done = node.run(["python3", "-", *words], stdin=SCRIPT, root=True, deadline_seconds=READY_SECONDS + SPARE_SECONDS)
    if not done.ok:
        raise ClusterError(f"{node.name}: service not ready: {' | '.join(done.last_lines[-3:])}; {by_hand(node)}")
    return done.text.split()[-1]
