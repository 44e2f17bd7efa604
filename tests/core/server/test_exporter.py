import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from cluster.jobs.roles import role_metrics
from core import __version__
from core.metrics import exporter, standard
from core.metrics.catalogue import Identity, ReadingsCollector
from core.metrics.exporter import Exporter
from core.metrics.node import processor_celsius
from core.metrics.process import Cost, memory_bytes
from core.metrics.standard import TrafficMeter
from tests.core.server.processes import HANG_SECONDS, asked
from tests.habits import needs
from tests.tables import table


@contextmanager
def exporting(
    registry: CollectorRegistry,
    ready: Callable[[], bool] = lambda: True,
    host: str = "127.0.0.1",
    cost: Cost | None = None,
) -> Iterator[Exporter]:
    serving = exporter.serve(registry, host, 0, ready, cost=cost)
    try:
        yield serving
    finally:
        serving.close()


def test_ready_follows_what_it_is_told() -> None:
    ready = [False]
    with exporting(CollectorRegistry(), lambda: ready[0]) as serving:
        for status, text in ((503, "not ready\n"), (200, "ready\n")):
            answer = asked(serving.port, "/ready")
            assert (answer.status, answer.text) == (status, text)
            ready[0] = True


class Half(Collector):
    """Has figures that take time, or that fail."""

    def __init__(self, begun: threading.Event, go_on: threading.Event) -> None:
        self._begun = begun
        self._go_on = go_on

    def collect(self) -> Iterator[Metric]:
        self._begun.set()
        assert self._go_on.wait(HANG_SECONDS)
        yield GaugeMetricFamily("pscluster_much", "x" * 4_000_000, value=1)


def test_one_that_goes_before_the_answer_is_there_is_no_error(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    registry = CollectorRegistry(auto_describe=False)
    begun = threading.Event()
    go_on = threading.Event()
    registry.register(Half(begun, go_on))
    with exporting(registry) as serving:
        with socket.create_connection(("127.0.0.1", serving.port)) as gone:
            gone.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            assert begun.wait(HANG_SECONDS)
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        go_on.set()
        assert asked(serving.port, "/metrics").status == 200
    assert (capsys.readouterr().err, caplog.messages) == ("", [])


def test_metrics_are_those_of_the_registry_given_and_no_others() -> None:
    registry = CollectorRegistry()
    Gauge("pscluster_answer", "Of everything", registry=registry).set(42)
    openmetrics = {"Accept": "application/openmetrics-text; version=1.0.0"}
    with exporting(registry) as serving:
        plain = asked(serving.port, "/metrics?name[]=ignored", headers={"Accept": "*/*"})
        other = asked(serving.port, "/metrics", headers=openmetrics)
        assert asked(serving.port, "/").status == 404
    assert (plain.status, plain.headers["Content-Type"].partition(";")[0]) == (200, "text/plain")
    (family,) = text_string_to_metric_families(plain.text)
    assert family.name == "pscluster_answer"
    assert other.headers["Content-Type"].startswith("application/openmetrics-text")
    assert other.text.endswith("# EOF\n")


def test_what_the_cluster_itself_reads_is_no_prometheus_that_comes_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted: list[str] = []

    def one() -> nullcontext[None]:
        counted.append("a scrape")
        return nullcontext()

    with exporting(CollectorRegistry()) as serving:
        monkeypatch.setattr(serving.scrapes, "one", one)
        assert role_metrics(f"127.0.0.1:{serving.port}") == []
        assert counted == []
        asked(serving.port, "/metrics")
        assert counted == ["a scrape"]


def test_an_exporter_answers_on_ipv6_and_frees_its_port() -> None:
    needs.possible("" if socket.has_dualstack_ipv6() else "this machine has no IPv6")
    with exporting(CollectorRegistry(), host="::1") as serving:
        assert asked(serving.port, "/ready", host="::1").status == 200
    with socket.create_server(("::1", serving.port), family=socket.AF_INET6):
        pass


def registered(registry: CollectorRegistry, identity: Identity, **more: Any) -> TrafficMeter:
    """The figures of a lean role at these."""
    cost = Cost()
    return standard.register(
        registry, identity, metrics_port=1, server="lean", ready=lambda: True, cost=cost, **more
    )


def test_every_process_tells_about_itself_its_node_and_its_build() -> None:
    registry = CollectorRegistry(auto_describe=False)
    identity = Identity("worker", 3)
    meter = registered(registry, identity)
    families = {family.name: family for family in registry.collect()}
    meter.close()
    for name in table("core/server/tables", "above zero"):
        (sample,) = families[f"pscluster_{name}"].samples
        assert sample.value > 0, name
        assert sample.labels == {"role": "worker", "task": "3"}
    (build,) = families["pscluster_build_info"].samples
    assert build.labels["tensorflow"].startswith("2.")
    assert (build.value, build.labels["version"], build.labels["server"]) == (
        1,
        __version__,
        "lean",
    )
    assert all(name.startswith("pscluster_") for name in families)


def test_what_the_exporter_computes_is_counted() -> None:
    registry = CollectorRegistry()
    cost = Cost()
    registry.register(ReadingsCollector(Identity("ps", 0), cost.read))
    with exporting(registry, cost=cost) as serving:
        seen = [0.0]
        for _ in range(20):
            text = asked(serving.port, "/metrics").text
            (family,) = text_string_to_metric_families(text)
            seen.append(family.samples[0].value)
    assert family.name == "pscluster_exporter_cpu_seconds"
    assert seen == sorted(seen)
    assert seen[-1] > 0


def test_memory_is_read_in_bytes() -> None:
    status = (
        "Name:\tpython\nVmRSS:\t  352648 kB\nRssAnon:\t   83684 kB\nRssFile:\t  267306"
        " kB\nVmSwap:\t       0 kB\n"
    )
    assert memory_bytes(status) == {"RssAnon": 83684 * 1024, "RssFile": 267306 * 1024, "VmSwap": 0}


def test_the_temperature_is_the_hottest_of_the_processor() -> None:
    # This machine has no sensor; a Pi has cpu_thermal, a PC coretemp beside those of its disks.
    def readings(*celsius: float) -> list[SimpleNamespace]:
        return [SimpleNamespace(current=value) for value in celsius]

    disks = {"nvme": readings(70.0)}
    assert processor_celsius({"cpu_thermal": readings(48.3)}) == 48.3
    assert processor_celsius({**disks, "coretemp": readings(51.0, 63.0, 55.0)}) == 63.0
    assert (processor_celsius(disks), processor_celsius({})) == (None, None)
