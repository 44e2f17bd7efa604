"""The files that Prometheus and Grafana read, by their paths in one folder."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from jinja2 import StrictUndefined, Template

from core.ground.errors import ClusterError
from core.ground.files import atomic_write
from deploy.monitor.ready import USER

if TYPE_CHECKING:
    from core.inventory import Inventory


CONFIGURATION = "prometheus.yml"
READY = "ready.py"
PASSWORD = "password"
"""Which file holds the password of USER."""
WEB = "web.yml"
RECORDING_RULES = "rules/pscluster-recording.yml"
ALERT_RULES = "rules/pscluster-alerts.yml"
"""Here in Prometheus's own format, and in the folder with the interval of the inventory."""
_HERE = Path(__file__).parent
_HEAD = (
    "# Written by pscluster from the inventory; `fab deploy monitor` replaces changes made here.\n"
)


def rule_group(name: str) -> dict[str, Any]:
    """Return the one group in RECORDING_RULES or ALERT_RULES, without its interval."""
    (group,) = yaml.safe_load((_HERE / name).read_text(encoding="utf-8"))["groups"]
    return dict(group)


def _rules(name: str, seconds: int) -> str:
    group = rule_group(name)
    content = {
        "groups": [{"name": group["name"], "interval": f"{seconds}s", "rules": group["rules"]}]
    }
    return _HEAD + yaml.safe_dump(content, sort_keys=False, width=1000, allow_unicode=True)


def _filled(name: str, **values: object) -> str:
    text = (_HERE / "templates" / f"{name}.j2").read_text(encoding="utf-8")
    return _HEAD + Template(text, keep_trailing_newline=True, undefined=StrictUndefined).render(
        values
    )


def _targets(inventory: "Inventory", places: Iterable[tuple[str, str, str]]) -> str:
    """Return targets as JSON: the address, the node and the process of each."""
    entries = [
        {
            "targets": [address],
            "labels": {"cluster": inventory.cluster, "node": node, "process": process},
        }
        for address, node, process in places
    ]
    return json.dumps(entries, indent=2) + "\n"


def targets(inventory: "Inventory") -> str:
    """Return the metrics ports of all role processes and of the coordinator, as JSON.

    The coordinator's answers while a job runs. The labels say where a target is. `role` and `task`
    are labels of the metrics themselves, because the coordinator reports on all workers.
    """
    tasks = inventory.tasks()
    return _targets(inventory, ((task.metrics_address, task.node, task.name) for task in tasks))


def service_targets(inventory: "Inventory") -> str:
    """The metrics ports of the recognition services on nodes."""
    service = inventory.service
    return _targets(
        inventory,
        (
            (f"{inventory.hosts[node]}:{service.metrics_port}", node, f"service:{service.model}")
            for node in inventory.service_nodes
        ),
    )


def prometheus_files(
    inventory: "Inventory", service_state: Path | None = None
) -> Mapping[str, str]:
    """The files of Prometheus.

    All clusters have the same rules; each cluster has its own file of targets.

    With `service_state` it also watches the services that keep their state in this folder.
    """
    seconds = inventory.monitor.scrape_seconds
    nodes = f"services/pscluster-{inventory.cluster}.json"
    return {
        f"targets/pscluster-{inventory.cluster}.json": targets(inventory),
        **({nodes: service_targets(inventory)} if inventory.service_nodes else {}),
        RECORDING_RULES: _rules(RECORDING_RULES, seconds),
        ALERT_RULES: _rules(ALERT_RULES, seconds),
        CONFIGURATION: _filled(
            CONFIGURATION,
            seconds=seconds,
            service=service_state,
            cluster=inventory.cluster,
            on_nodes=bool(inventory.service_nodes),
        ),
    }


def ready_program() -> str:
    """The program that waits for Prometheus, as a file that needs no package of ours."""
    return (_HERE / READY).read_text(encoding="utf-8")


def web_configuration(password: str) -> str:
    """Return the settings that demand a password of 256 random bits, the same for the same one.

    A page that points its own name here (DNS rebinding) does not know it.
    """
    import bcrypt

    salt = f"$2b$04${hashlib.sha256(password.encode()).hexdigest()[:21]}."
    digest = bcrypt.hashpw(password.encode(), salt.encode()).decode()
    return f"basic_auth_users: {{{USER}: {digest!r}}}\n"


def dashboards() -> Mapping[str, str]:
    """Return Grafana's dashboards as JSON by the names of their files."""
    paths = sorted((_HERE / "dashboards").glob("*.json"))
    return {path.name: path.read_text(encoding="utf-8") for path in paths}


def grafana_files(prometheus_url: str, scrape_seconds: int) -> Mapping[str, str]:
    """The files of Grafana."""
    return {
        "grafana/provisioning/datasources/pscluster.yml": _filled(
            "datasource.yml", url=prometheus_url, seconds=scrape_seconds, user=USER
        ),
        "grafana/provisioning/dashboards/pscluster.yml": _filled("dashboards.yml"),
        **{f"grafana/dashboards/{name}": text for name, text in dashboards().items()},
    }


def url(inventory: "Inventory") -> str:
    """The address of the cluster's Prometheus: on the monitor's node, else on this machine."""
    host = "127.0.0.1"
    if inventory.monitor_node is not None:
        host = inventory.hosts[inventory.monitor_node]
    return f"http://{host}:{inventory.monitor.port}"


def all_files(inventory: "Inventory") -> Mapping[str, str]:
    """Return all files of the folder."""
    return {
        **prometheus_files(inventory),
        **grafana_files(url(inventory), inventory.monitor.scrape_seconds),
    }


def write(folder: Path, files: Mapping[str, str]) -> tuple[Path, ...]:
    """Write the files that differ, each atomically.

    Returns the paths of the written files. Raises ClusterError where one cannot be written.
    """
    written: list[Path] = []
    for name, text in files.items():
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            same = path.read_bytes() == text.encode()
        except FileNotFoundError:
            same = False
        except OSError as problem:
            raise ClusterError(
                f"{path}: cannot be written ({problem.strerror}): name another folder"
            ) from None
        if not same:
            atomic_write(path, text.encode())
            written.append(path)
    return tuple(written)
