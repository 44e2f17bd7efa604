"""A real Prometheus beside a real service: it finds the service, and drift shows in what the alerts
compare."""

import json
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from core.inventory.templates import local_inventory
from deploy.common.project import environment_for_any_folder
from deploy.monitor.files import dashboards
from recognise.service.drift import LEAST_WINDOWS, MOST_WINDOWS
from tests.core.control.squatter import squatting
from tests.deploy.monitor.expressions import ALERTS, RECORDINGS, SERVICE, expressions_of, filled_in
from tests.deploy.monitor.watched import Prometheus, monitored
from tests.deploy.playing import eventually
from tests.hang import HANG_SECONDS
from tests.ports import free_port
from tests.recognise.exports import export as of_a_phone
from tests.recognise.readings import walk
from tests.recognise.service.exports import export, windows
from tests.recognise.service.running import (
    PATH,
    READY,
    Service,
    as_json,
    command,
    service,
    state_of,
)
from tests.recognise.service.streaming import labels, send, session

pytestmark = pytest.mark.long

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
UNSURE = CONDITIONS["PsclusterServiceUnsure"]
SHIFTED = CONDITIONS["PsclusterServiceInputsShifted"]
UP = 'up{job="pscluster-service"}'


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


def ask(prometheus: Prometheus, running: Service, given: np.ndarray) -> None:
    """Infers, until Prometheus has scraped the service after it, and then evaluated the rules."""
    with running.client() as client:
        for at in range(0, len(given), 250):
            answer = client.post(f"{PATH}/infer", json=as_json(given[at : at + 250]))
            assert answer.status_code == 200, answer.text
        exported = client.get("/metrics").text
    counted = "pscluster_service_request_seconds_count"
    (count,) = re.findall(rf"(?m)^{counted}\S* (\S+)$", exported)
    prometheus.until(f"{counted} == {count}")
    prometheus.until(f"timestamp(process:pscluster_service_up:max) > {time.time()}")


def true_ones(prometheus: Prometheus) -> list[str]:
    """The alerts whose condition has a value now."""
    return [name for name in CONDITIONS if holds(prometheus, CONDITIONS[name])]


def holds(prometheus: Prometheus, expression: str) -> bool:
    """Whether it has a value now."""
    return bool(prometheus.ask("query", query=expression)["result"])


def test_shifted_windows_make_the_alerts_of_drift_true_and_no_others_do(
    prometheus: Prometheus, folder: Path
) -> None:
    with service(folder, "--model", str(folder / "export")) as running:
        prometheus.until(f"{UP} == 1")
        ask(prometheus, running, 100 * windows(1))
        assert not holds(prometheus, SHIFTED.split()[0])
        ask(prometheus, running, windows(MOST_WINDOWS))
        assert holds(prometheus, UNSURE.split()[0])
        assert holds(prometheus, SHIFTED.split()[0])
        assert true_ones(prometheus) == []
        ask(prometheus, running, 9.80665 * windows(MOST_WINDOWS, 1))
        assert true_ones(prometheus) == ["PsclusterServiceInputsShifted"]
        ask(prometheus, running, np.zeros_like(windows(MOST_WINDOWS)))
        assert true_ones(prometheus) == ["PsclusterServiceUnsure"]
        (target,) = prometheus.ask("query", query=UP)["result"]
        labels = target["metric"]
        assert (labels["process"], labels["cluster"]) == ("service:har", "local")
    prometheus.until(f"absent({UP})")


def test_every_expression_about_a_service_has_data(prometheus: Prometheus, folder: Path) -> None:
    begun = time.time()
    phone = ("--name", "phone", "--model", str(of_a_phone(folder / "phone")))
    left = {**dict(PANELS), **{name: name for name in OF_SERVICE}}
    assert len(left) > 20

    def without_data(where: str) -> bool:
        filled = filled_in(left[where], "local", ".*", "1m")
        return not prometheus.values(filled, begun, time.time())

    with (
        service(folder, "--model", str(folder / "export")) as running,
        service(folder, *phone) as streamed,
    ):
        prometheus.until(f"count({UP} == 1) == 2")
        for _ in range(2):  # a rate needs requests at two scrapes
            ask(prometheus, running, windows(LEAST_WINDOWS))
        with session(streamed) as (connection, _):
            send(connection, walk(900))
            labels(connection, 13)
        end = time.monotonic() + HANG_SECONDS
        while left and time.monotonic() < end:
            left = {where: left[where] for where in left if without_data(where)}
    assert left == {}
    prometheus.until(f"absent({UP})")


def test_prometheus_evaluates_the_rules_without_an_error(prometheus: Prometheus) -> None:
    rules = [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
    assert [(rule["name"], rule["lastError"]) for rule in rules if rule.get("lastError")] == []


@contextmanager
def killed(folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """A service that is killed at the end of the block."""
    with subprocess.Popen(
        command(state_of(folder), "--model", str(folder / "export")),
        env=environment_for_any_folder(),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            assert process.stdout is not None
            assert READY.fullmatch(process.stdout.readline())
            yield process
        finally:
            process.kill()


def test_who_takes_the_port_of_a_killed_service_hears_no_secret(
    prometheus: Prometheus, folder: Path
) -> None:
    with killed(folder):
        prometheus.until(f"{UP} == 1")
        (target,) = (state_of(folder) / "targets").iterdir()
        address = json.loads(target.read_text())[0]["targets"][0]
    token = (state_of(folder) / "token").read_text().strip()
    with squatting(int(address.rpartition(":")[2])) as heard:
        eventually(lambda: "GET /metrics" in heard.read_text(), "a scrape")
        said = heard.read_text()
    assert token not in said
    assert "uthorization" not in said


def test_a_killed_service_is_down_until_the_next_one_takes_its_place(
    prometheus: Prometheus, folder: Path
) -> None:
    with killed(folder):
        prometheus.until(f"{UP} == 1")
    prometheus.until(CONDITIONS["PsclusterServiceDown"])
    with service(folder, "--tls"):  # a certificate that no authority of Prometheus signed
        prometheus.until(f"{UP} == 1")
        prometheus.until(f"count({UP}) == 1")
        prometheus.until("process:pscluster_service_up:max == 1")
    prometheus.until(f"absent({UP})")
