"""A real Prometheus beside a real service: it finds the service, and all that is asked has data."""

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from core.control.own_state import state_of_services
from core.inventory.templates import local_inventory
from deploy.common.project import environment_for_any_folder
from deploy.monitor.files import dashboards
from recognise.service.metrics import LEAST_WINDOWS
from tests.deploy.monitor.expressions import ALERTS, RECORDINGS, SERVICE, expressions_of, filled_in
from tests.deploy.monitor.watched import Prometheus, monitored
from tests.hang import HANG_SECONDS
from tests.ports import free_port
from tests.recognise.exports import export as of_a_phone
from tests.recognise.readings import walk
from tests.recognise.service.exports import export, windows
from tests.recognise.service.running import (
    PATH,
    READY,
    as_json,
    command,
    service,
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
UP = 'up{job="pscluster-service"}'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One with an inventory and an export, whose services keep their state where `fab` looks."""
    made = tmp_path_factory.mktemp("watched")
    (made / "inventory.yaml").write_text(local_inventory(1, 1), encoding="utf-8")
    export(made / "export", SURE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.recognise.service.running.state_of", state_of_services)
        yield made


@pytest.fixture(scope="module")
def prometheus(folder: Path) -> Iterator[Prometheus]:
    settings = [f"monitor.port={free_port()}", "monitor.scrape_seconds=1"]
    with monitored(folder / "inventory.yaml", settings) as running:
        yield running


def test_every_expression_about_a_service_has_data(prometheus: Prometheus, folder: Path) -> None:
    begun = time.time()
    phone = str(of_a_phone(folder / "phone"))
    left = {**dict(PANELS), **{name: name for name in OF_SERVICE}}
    assert len(left) > 20

    def without_data(where: str) -> bool:
        filled = filled_in(left[where], "local", ".*", "1m")
        return not prometheus.values(filled, begun, time.time())

    with (
        service(folder, "--model", str(folder / "export")) as running,
        service(folder, "--name", "phone", "--model", phone) as streamed,
    ):
        prometheus.until(f"count({UP} == 1) == 2")
        with session(streamed) as (connection, _), running.client() as client:
            send(connection, walk(900))
            labels(connection, 13)
            end = time.monotonic() + HANG_SECONDS
            while left and time.monotonic() < end:  # a rate needs requests at two scrapes
                for part in np.array_split(windows(LEAST_WINDOWS), LEAST_WINDOWS // 250 + 1):
                    assert client.post(f"{PATH}/infer", json=as_json(part)).status_code == 200
                left = {where: left[where] for where in left if without_data(where)}
    assert left == {}
    prometheus.until(f"absent({UP})")


@contextmanager
def killed(folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """A service that is killed at the end of the block."""
    with subprocess.Popen(
        command(state_of_services(folder), "--model", str(folder / "export")),
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


def test_a_killed_service_is_down_until_the_next_one_takes_its_place(
    prometheus: Prometheus, folder: Path
) -> None:
    with killed(folder):
        prometheus.until(f"{UP} == 1")
    (down,) = [one["expr"] for one in ALERTS if one["alert"] == "PsclusterServiceDown"]
    prometheus.until(down)
    with service(folder, "--tls"):  # a certificate that no authority of Prometheus signed
        prometheus.until(f"{UP} == 1")
        prometheus.until(f"count({UP}) == 1")
        prometheus.until("process:pscluster_service_up:max == 1")
    prometheus.until(f"absent({UP})")
