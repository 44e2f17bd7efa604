"""The recognition service of a node: restarted, and waited for until it answers again.

Several are restarted one node after the other, so that clients find a service at any time.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from deploy.cluster.connector import Connector
from deploy.cluster.places import (
    CERTIFICATES,
    CURRENT,
    SERVICE_ACCOUNT,
    NodePlaces,
    account_numbers,
)
from deploy.common.command_line import quoted
from deploy.converge.apply import run_as_root
from deploy.converge.machine_facts import MachineFacts, Questions
from deploy.converge.resources import OWNER, RunningUnit, keep_folder, keep_unit_files
from deploy.converge.subject import (
    Change,
    Changes,
    DeploymentSpec,
    Found,
    Shell,
    Subject,
)
from deploy.render.units import SERVICE_DATA, SERVICE_UNIT, service_unit, unit_path
from deploy.rooted.commands import PYTHON

if TYPE_CHECKING:
    from core.inventory import Inventory

SERVICE_HINT = f"`journalctl -u {SERVICE_UNIT}` there says more"
READY_SECONDS = 120.0
"""The time to the first answer: a Raspberry Pi 3 imports and opens a model in about 20."""
SIGNED = f"{CERTIFICATES}/signed"
"""The end of the certificate, in seconds of the epoch, and what it was signed for."""
RENEW_DAYS = 30
"""The days that `recognise.service.certificates` counts too."""
SPARE_SECONDS = 60.0
"""The time for the end of the old process, and for the connection."""

Verb = Literal["restart", "wait"]

SCRIPT = (
    f"""\
import http.client, os, re, ssl, subprocess, sys, time
{OWNER}
verb, unit, host, port, certificate, pointer, seconds, steady_seconds = sys.argv[1:]
""".encode()
    + b"""\
scheme = "https" if certificate else "http"
def systemctl(*words):
    return subprocess.run(["systemctl", *words], stdout=subprocess.PIPE, text=True)
def failed(words):
    journal = ["journalctl", "-q", "-o", "cat", "--no-pager", "-n", "3", "-u", unit]
    said = subprocess.run(journal, stdout=subprocess.PIPE, text=True).stdout.strip()
    print(said, words, sep="\\n", file=sys.stderr)
    sys.exit(1)
def own():
    with open(certificate, encoding="ascii") as file:
        first = re.search("-----BEGIN CERT.*?END CERTIFICATE-----", file.read(), re.DOTALL)
    return ssl.PEM_cert_to_DER_cert(first[0])
def answers():
    if not owns(main_pid(unit), int(port)):
        return False
    if certificate:  # which the other end has to have: who signed it does not matter
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection(host, int(port), timeout=5, context=context)
    else:
        connection = http.client.HTTPConnection(host, int(port), timeout=5)
    try:
        connection.connect()
        if certificate and connection.sock.getpeercert(True) != own():
            return False
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
    pid = main_pid(unit)
    if pid not in ("", "0", *pids[-1:]):
        pids, since = [*pids, pid], now
    if len(pids) > 3:
        failed("it ends again and again")
    steady = pids and pid == pids[-1] and now - since >= float(steady_seconds)
    if steady and not os.path.exists(pointer):
        sys.exit(print("waiting"))  # for the first promotion, with its port closed
    time.sleep(0.25)
    now = time.monotonic()
failed(f"no answer at {scheme}://{host}:{port}/v2/health/ready within {float(seconds):g} s")
"""
)
"""A program for the node's own Python, with `words_of`. It prints `ready` or `waiting`.

It asks the unit's own process, and none that has taken its port.
"""
STEADY_SECONDS = 5.0
"""A process without a promoted version that lived so long waits for one: a wrong setting ends it
earlier."""


def words_of(
    verb: Verb, inventory: "Inventory", node: str, seconds: float = READY_SECONDS
) -> list[str]:
    """The words of SCRIPT: `restart` waits too, `wait` does that alone."""
    service = inventory.service
    if service.certificate is not None:
        certificate = service.certificate
    elif service.tls:
        certificate = f"{CERTIFICATES}/server.pem"
    else:
        certificate = ""
    pointer = f"{SERVICE_DATA}/models/{service.model}/current.json"
    address = inventory.links[node], str(service.port)
    return [
        verb,
        SERVICE_UNIT,
        *address,
        certificate,
        pointer,
        f"{seconds:g}",
        f"{STEADY_SECONDS:g}",
    ]


def waits(inventory: "Inventory", node: str) -> str:
    """Return a line of shell that ends when the service which systemd started answers.

    It fails with the reason.
    """
    return quoted(PYTHON, "-c", SCRIPT.decode(), *words_of("wait", inventory, node)) + " >/dev/null"


def restart_service(inventory: "Inventory", node: Connector) -> str:
    """Restart the service of one node: `ready`, or `waiting` for its first promotion.

    Raises ClusterError.
    """
    arguments = words_of("restart", inventory, node.name)
    command = [PYTHON, "-", *arguments]
    seconds = READY_SECONDS + SPARE_SECONDS
    return run_as_root(node, command, "service not ready", seconds, SCRIPT).split()[-1]


def keep_certificate(facts: MachineFacts, address: str, names: Sequence[str]) -> Changes:
    """Sign the certificate of a node's service: it is absent, for other names or about to run out.

    Root's authority there signs it for a year. The service's account gets it from systemd and holds
    no authority.
    """
    identity = " ".join((address, *names))
    days, _, signed = facts.more.get("certificate", "").partition(" ")
    if not days:
        reason = "there is none"
    elif signed != identity:
        reason = "for another address or names"
    elif int(days) < RENEW_DAYS:
        reason = f"it runs out in {days} days"
    else:
        return
    python = quoted("env", f"PYTHONPATH={CURRENT}", "PYTHONSAFEPATH=1", NodePlaces().python)
    module = ("-B", "-m", "recognise.service.certificates", CERTIFICATES)
    sign = f"{python} {quoted(*module, address, *names)}"
    steps = (Shell("sign the service's certificate", sign, 60.0),)
    if days:
        action = "change"
    else:
        action = "create"
    yield Change("file", f"{CERTIFICATES}/server.pem", action, reason, steps)


_CERTIFICATE_SCRIPT = f"""\
section certificate
[ -r {SIGNED} ] && read -r until names <{SIGNED} &&
    echo "$(( (until - $(date +%s)) / 86400 )) $names"
"""


def _check(spec: DeploymentSpec, facts: MachineFacts) -> Found:
    if not spec.recognises:
        return
    service = spec.inventory.service
    unit = facts.unit(SERVICE_UNIT)
    if service.certificate and service.certificate not in facts.files:
        yield (
            "problem",
            "service",
            f"{service.certificate} is not there: put the certificate and its key on the"
            " node, or change `service`",
        )
    days = facts.more.get("certificate", "").partition(" ")[0]
    if days and int(days) < RENEW_DAYS:
        yield (
            "warning",
            "service",
            f"the service's certificate runs out in {days} days: `fab deploy start` renews it",
        )
    if unit is not None and unit.running:
        return
    for port, name in ((service.port, "port"), (service.metrics_port, "metrics_port")):
        if port in facts.listening:
            yield (
                "problem",
                "port",
                f"port {port} of the service is taken by {facts.listening[port]}: stop it, or"
                f" choose another as `service.{name}`",
            )


def _plan(spec: DeploymentSpec, facts: MachineFacts) -> Changes:
    """Yield what the service's folder, certificate and unit lack; other nodes have none.

    A unit there is a stale one. Versions stay until `reset`.
    """
    if not spec.recognises:
        return
    path = unit_path(SERVICE_UNIT)
    unit = service_unit(spec.inventory, spec.name, "memory" in facts.controllers)
    service = spec.inventory.service
    because = ""
    yield from keep_folder(facts, SERVICE_DATA, 0o700, SERVICE_ACCOUNT, whole=True)
    if service.tls and service.certificate is None:
        yield from keep_folder(facts, CERTIFICATES)
        signed = [*keep_certificate(facts, spec.inventory.links[spec.name], service.names)]
        yield from signed
        if signed or _is_newer(facts):
            because = "its certificate is newer than its process"
    yield from keep_unit_files(facts, [(path, unit)])
    running = RunningUnit(
        SERVICE_UNIT,
        path,
        unit,
        spec.release.code.key,
        hint=SERVICE_HINT,
        until=waits(spec.inventory, spec.name),
        account=account_numbers(spec.inventory)[SERVICE_ACCOUNT],
        because=because,
    )
    yield from running.changes(facts)


def _is_newer(facts: MachineFacts) -> bool:
    """Say whether the certificate was signed after the service's start."""
    unit = facts.unit(SERVICE_UNIT)
    file = facts.files.get(SIGNED)
    if unit is None or file is None or unit.started_seconds is None:
        return False
    return file.modified_seconds > unit.started_seconds + 1


def _questions(spec: DeploymentSpec) -> Questions:
    if not spec.recognises:
        return Questions(files=(SERVICE_DATA,))
    files = [SERVICE_DATA, CERTIFICATES, SIGNED]
    if spec.inventory.service.certificate:
        files.append(spec.inventory.service.certificate)
    return Questions(files=tuple(files), units=(SERVICE_UNIT,))


SERVICE = Subject(
    "service",
    "service",
    _CERTIFICATE_SCRIPT,
    {"certificate": str.strip},
    check=_check,
    plan=_plan,
    questions=_questions,
)
