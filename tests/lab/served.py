"""A service on a node, as its operator and a client on another node see it."""

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np

from tests.deploy.playing import eventually
from tests.lab.lab import Lab
from tests.lab.operator import Operator
from tests.recognise.service.exports import export, logits, windows
from tests.recognise.service.running import as_json

SECONDS = 180.0
_ASK = (
    "import ssl, sys, urllib.request as web; trust ="
    " ssl.create_default_context(cadata=sys.stdin.read()); asked = web.Request(sys.argv[1],"
    " sys.argv[3].encode(), {'Authorization': 'Bearer ' + sys.argv[2]}); print(web.urlopen(asked,"
    " timeout=20, context=trust).read().decode())"
)
_READ = (
    "import sys, urllib.request as web; print(web.urlopen(sys.argv[1], timeout=5).read().decode())"
)


def versions_come_and_go(
    lab: Lab, operator: Operator, at: tuple[str, str], asks: str, folder: Path
) -> None:
    """Promote two versions and roll back on the node `at`, and ask from the node `asks`.

    The client trusts the node's own authority alone. The export of version n answers n times the
    logits of version 1.
    """
    node, address = at
    for number in (1, 2):
        export(folder / str(number), float(number))

    assert f"{node}: har: version 1" in promoted(operator, folder / "1")
    eventually(operator.well, "the first version is served", SECONDS)
    token = service(operator, "token").split()[-1]
    authority = lab.ssh(node, "cat /etc/pscluster/service/authority.crt").stdout
    body = json.dumps(as_json(windows(2), outputs=[{"name": "logits"}]))
    words = shlex.join(
        ["python3", "-c", _ASK, f"https://{address}:8470/v2/models/har/infer", token, body]
    )

    def answer() -> Any:
        return json.loads(lab.ssh(asks, f"{words} <<'END'\n{authority}\nEND").stdout)

    found = answer()
    assert found["model_version"] == "1"
    assert np.allclose(
        np.reshape(found["outputs"][0]["data"], (2, 2)), logits(windows(2)), rtol=1e-4, atol=1e-5
    )
    promoted(operator, folder / "2")
    eventually(lambda: answer()["model_version"] == "2", "the new version is served", SECONDS)
    assert "current" in service(operator, "list")
    service(operator, "rollback")
    eventually(lambda: answer()["model_version"] == "1", "the version before is served", SECONDS)
    before = main_process(lab, node)
    assert f"{node}: service ready" in operator.fab("deploy", "restart", "--role", "service").stdout
    assert main_process(lab, node) not in (before, "0")
    assert answer()["model_version"] == "1"  # at once: the restart ended when the service was ready
    metrics = shlex.join(["python3", "-c", _READ, f"http://{address}:9204/metrics"])
    assert "pscluster_service_model_version" in lab.ssh(asks, metrics).stdout


def main_process(lab: Lab, node: str) -> str:
    """The state of the service's unit."""
    return lab.ssh(
        node, "systemctl show --value -p MainPID pscluster-service.service"
    ).stdout.strip()


def promoted(operator: Operator, folder: Path) -> str:
    """What the promotion of an export says."""
    return service(operator, "promote", "--model", str(folder))


def service(operator: Operator, *words: str) -> str:
    """What a command says of the nodes' service; without an inventory it is this machine's."""
    return operator.fab("service", *words, "--inventory", str(operator.inventory)).stdout
