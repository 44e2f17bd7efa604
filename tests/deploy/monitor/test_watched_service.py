"""A real Prometheus beside a real service: it finds the service, and drift shows in what the alerts compare."""

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from cluster.inventory.templates import local_inventory
from deploy.common.project import environment_for_any_folder
from deploy.monitor.grafana import dashboards
from recognise.service.drift import LEAST_WINDOWS, MOST_WINDOWS
from tests.deploy.monitor.expressions import ALERTS, RECORDINGS, SERVICE, expressions_of, filled_in
from tests.deploy.monitor.watched import Prometheus, monitored
from tests.jobs.cluster import free_port
from tests.service.exports import export, windows
from tests.service.running import PATH, READY, Service, as_json, command, service, state_of

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

SURE = 20.0
"""Factor of an export that is sure of windows like those of its training."""
PANELS = [
    (where, expression)
    for text in dashboards().values()
    for where, expression in expressions_of(json.loads(text))
    if SERVICE in expression
]
OF_SERVICE = [name for name in RECORDINGS if SERVICE in name]
CONDITIONS = {alert["alert"]: alert["expr"] for alert in ALERTS if SERVICE in alert["expr"]}
UNSURE, SHIFTED = CONDITIONS["PsclusterServiceUnsure"], CONDITIONS["PsclusterServiceInputsShifted"]
UP = 'up{job="pscluster-service"}'
HANG_SECONDS = 60.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One with an inventory and an export."""
    made = tmp_path_factory.mktemp("watched")
    (made / "inventory.yaml").write_text(local_inventory(1, 1), encoding="utf-8")
    export(made / "export", SURE)
    return made


@pytest.fixture(scope="module")
def prometheus(folder: Path) -> Iterator[Prometheus]:
    settings = [f"monitor.port={free_port()}", "monitor.scrape_seconds=1"]
    with monitored(folder / "inventory.yaml", settings) as running:
        yield running


def ask(running: Service, given: np.ndarray) -> None:
    with running.client() as client:
        for at in range(0, len(given), 250):
            answer = client.post(f"{PATH}/infer", json=as_json(given[at : at + 250]))
            assert answer.status_code == 200, answer.text


def holds(prometheus: Prometheus, expression: str) -> bool:
    """Whether it has a value now."""
    return bool(prometheus.ask("query", query=expression)["result"])


def evaluated(prometheus: Prometheus, running: Service) -> None:
    """Until Prometheus has scraped the service after all its inferences so far, and then evaluated the rules."""
    with running.client() as client:
        lines = client.get("/metrics").text.splitlines()
    (count,) = [line.split()[-1] for line in lines if line.startswith("pscluster_service_request_seconds_count")]
    prometheus.until(f"pscluster_service_request_seconds_count == {count}")
    prometheus.until(f"timestamp(process:pscluster_service_up:max) > {time.time()}")


def test_shifted_windows_make_the_alerts_of_drift_true_and_no_others_do(prometheus: Prometheus, folder: Path) -> None:
    begun = time.time()
    with service(folder, "--model", str(folder / "export")) as running:
        prometheus.until(f"{UP} == 1")
        ask(running, 100 * windows(1))
        evaluated(prometheus, running)
        assert not holds(prometheus, SHIFTED.split()[0])
        ask(running, windows(MOST_WINDOWS))
        evaluated(prometheus, running)
        assert holds(prometheus, UNSURE.split()[0])
        assert holds(prometheus, SHIFTED.split()[0])
        assert [name for name, condition in CONDITIONS.items() if holds(prometheus, condition)] == []
        ask(running, 9.80665 * windows(MOST_WINDOWS, 1))
        evaluated(prometheus, running)
        assert [name for name, condition in CONDITIONS.items() if holds(prometheus, condition)] == [
            "PsclusterServiceInputsShifted"
        ]
        ask(running, np.zeros_like(windows(MOST_WINDOWS)))
        evaluated(prometheus, running)
        assert [name for name, condition in CONDITIONS.items() if holds(prometheus, condition)] == [
            "PsclusterServiceUnsure"
        ]
        ask(running, windows(LEAST_WINDOWS))  # a rate needs requests at two scrapes
        wanted = {**dict(PANELS), **{name: name for name in OF_SERVICE}}
        left = dict(wanted)
        end = time.monotonic() + HANG_SECONDS
        while left and time.monotonic() < end:
            left = {
                where: expression
                for where, expression in left.items()
                if not prometheus.values(filled_in(expression, "local", ".*", "1m"), begun, time.time())
            }
        assert left == {}
        assert len(wanted) > 15
        (target,) = prometheus.ask("query", query=UP)["result"]
        assert target["metric"]["process"] == "service:har"
        assert target["metric"]["cluster"] == "local"
    prometheus.until(f"absent({UP})")


def test_prometheus_evaluates_the_rules_without_an_error(prometheus: Prometheus) -> None:
    rules = [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
    assert [(rule["name"], rule["lastError"]) for rule in rules if rule.get("lastError")] == []


@contextmanager
def killed(folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """A service that is killed at the end of the block."""
    with subprocess.Popen(
        command(state_of(folder), "--model", str(folder / "export")), env=environment_for_any_folder(), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            assert READY.fullmatch(process.stdout.readline())
            yield process
        finally:
            process.kill()


def test_a_killed_service_is_down_until_the_next_one_takes_its_place(prometheus: Prometheus, folder: Path) -> None:
    with killed(folder):
        prometheus.until(f"{UP} == 1")
    prometheus.until(CONDITIONS["PsclusterServiceDown"])
    with service(folder):
        prometheus.until(f"{UP} == 1")
        prometheus.until(f"count({UP}) == 1")
        prometheus.until("process:pscluster_service_up:max == 1")
    prometheus.until(f"absent({UP})")
