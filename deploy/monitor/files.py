"""The files that Prometheus and Grafana read, by their paths in one folder.

A Prometheus in the foreground of a command reads them on this machine.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from signal import Signals
from typing import TYPE_CHECKING, Any

import yaml
from jinja2 import StrictUndefined, Template

from core.control.own_state import kept_token, make_private, state_of_services
from core.ground.children import Child, EndRequest
from core.ground.errors import ClusterError, reason_of
from core.ground.files import atomic_write
from core.ground.ports import check_free
from core.ground.waiting import until
from deploy.common.interrupts import interruptible
from deploy.common.project import ROOT
from deploy.monitor.ready import USER, is_ready

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


HOST = "127.0.0.1"
FETCHED = ROOT / ".cache/prometheus/usr/bin/prometheus"
"""Program that `python -m tools.prometheus_tools` unpacks from Debian's package."""
READY_SECONDS = 60.0
END_SECONDS = 30.0
_POLL_SECONDS = 0.1


def find_prometheus(search: str | None = None, fetched: Path = FETCHED) -> Path:
    """The program, on PATH (or `search`) or unpacked by `tools.prometheus_tools`.

    Raises ClusterError without one.
    """
    executable = shutil.which("prometheus", path=search)
    if executable is not None:
        return Path(executable)
    if fetched.exists():
        return fetched
    raise ClusterError(
        "no `prometheus` on this machine's PATH: in the project's folder `.venv/bin/python -m"
        " tools.prometheus_tools prometheus --version` fetches Debian's without installing it; `fab"
        " deploy monitor --out DIR` writes the files for a Prometheus on another machine"
    )


def run_prometheus(inventory: "Inventory", folder: Path, say: Callable[[str], None]) -> None:
    """Write the configuration into `folder` and run Prometheus on it until an interrupt.

    The interrupt is raised again. Raises ClusterError for root, without a program, on a taken port,
    and when Prometheus ends by itself. Main thread only: the child dies with this process.
    """
    refuse_root()
    program = find_prometheus()
    port = inventory.monitor.port
    _check_that_it_is_free(port)
    services = state_of_services(inventory.path.resolve().parent)
    password = _secrets_and_services(folder, services)
    write(folder, prometheus_files(inventory, services))
    write(folder, {WEB: web_configuration(password)})
    log = folder / "prometheus.log"
    with interruptible(), _start(prometheus_command(program, inventory), folder, log) as child:
        _wait_until_ready(child, f"{HOST}:{port}", password, log)
        say(
            f"Prometheus: http://{HOST}:{port} (user {USER}, password in {folder / PASSWORD};"
            f" Ctrl-C ends it; its data is in {folder})"
        )
        child.wait()
        raise _ended(child, log)


def refuse_root() -> None:
    """Raises ClusterError for root: figures come from processes of other accounts."""
    if os.geteuid() == 0:
        raise ClusterError(
            "root starts no Prometheus: type this as an ordinary account, with a copy of the"
            " inventory in a folder of that account: every account may read the figures"
        )


def _secrets_and_services(folder: Path, services: Path) -> str:
    """Return the password, made once, and make the state of services.

    Prometheus waits for files in a folder that exists. Raises ClusterError.
    """
    try:
        make_private(folder)
        make_private(services / "targets")
        return kept_token(folder, PASSWORD)
    except OSError as problem:
        raise ClusterError(
            f"{problem.filename}: cannot be made ({reason_of(problem)}): Prometheus reads it"
        ) from None


def prometheus_command(program: Path, inventory: "Inventory") -> tuple[str, ...]:
    """Return the command line: loopback alone, with files and data where it starts."""
    monitor = inventory.monitor
    return (
        str(program),
        f"--config.file={CONFIGURATION}",
        "--storage.tsdb.path=data",
        f"--storage.tsdb.retention.time={monitor.retention_days}d",
        f"--storage.tsdb.retention.size={monitor.retention_megabytes}MB",
        f"--web.listen-address={HOST}:{monitor.port}",
        f"--web.config.file={WEB}",
        "--web.cors.origin=^$",  # its own default lets the pages of every site read it
        "--log.level=warn",
    )


def _start(command_line: Sequence[str], folder: Path, log: Path) -> Child:
    with log.open("wb") as output:
        return Child(
            command_line,
            folder=folder,
            stdout=output,
            stderr=output,
            ending=EndRequest(Signals.SIGTERM, END_SECONDS),
        )


def _check_that_it_is_free(port: int) -> None:
    """Raises ClusterError on a taken port."""
    try:
        check_free(HOST, port, "Prometheus")
    except ClusterError as problem:
        raise ClusterError(f"{problem}, e.g. --set monitor.port=9091") from None


def _wait_until_ready(child: Child, address: str, password: str, log: Path) -> None:
    def ended_or_ready() -> bool:
        return child.poll() is not None or is_ready(address, password)

    if not until(ended_or_ready, READY_SECONDS, _POLL_SECONDS):
        raise ClusterError(f"Prometheus was not ready within {READY_SECONDS:.0f} s: see {log}")
    if child.poll() is not None:
        raise _ended(child, log)


def _ended(child: Child, log: Path) -> ClusterError:
    last = log.read_text(errors="replace").strip().splitlines()[-1:] or ["its log is empty"]
    return ClusterError(f"Prometheus ended with exit code {child.returncode}: {last[0]} ({log})")
