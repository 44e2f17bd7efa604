import http.client
import socket
import struct
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from cluster import __version__
from cluster.jobs.roles import role_metrics
from cluster.metrics import exporter, standard
from cluster.metrics.instruments import Identity
from cluster.metrics.node import processor_celsius
from cluster.metrics.process import Cost, memory_bytes
from tests.habits import needs
from tests.server.processes import HANG_SECONDS


@contextmanager
def exporting(registry: CollectorRegistry, ready: list[bool], host: str = "127.0.0.1") -> Iterator[str]:
    serving = exporter.serve(registry, host, 0, lambda: ready[0])
    try:
        yield f"http://{'[::1]' if ':' in host else host}:{serving.port}"
    finally:
        serving.close()


def get(url: str, accept: str = "*/*") -> tuple[int, str, str]:
    request = urllib.request.Request(url, headers={"Accept": accept})
    try:
        with urllib.request.urlopen(request, timeout=HANG_SECONDS) as response:
            return response.status, response.headers["Content-Type"], response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


def test_ready_follows_what_it_is_told() -> None:
    ready = [False]
    with exporting(CollectorRegistry(), ready) as url:
        assert get(f"{url}/ready")[::2] == (503, "not ready\n")
        ready[0] = True
        assert get(f"{url}/ready")[::2] == (200, "ready\n")


class Half(Collector):
    """Has figures that take time, or that fail."""

    def __init__(self, begun: threading.Event, go_on: threading.Event) -> None:
        self._begun, self._go_on = begun, go_on

    def collect(self) -> Iterator[Metric]:
        self._begun.set()
        assert self._go_on.wait(HANG_SECONDS)
        yield GaugeMetricFamily("pscluster_much", "x" * 4_000_000, value=1)


def test_one_that_goes_before_the_answer_is_there_is_no_error(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    registry, begun, go_on = CollectorRegistry(auto_describe=False), threading.Event(), threading.Event()
    registry.register(Half(begun, go_on))
    with exporting(registry, [True]) as url:
        address = urllib.parse.urlsplit(url)
        with socket.create_connection((address.hostname, address.port)) as gone:
            gone.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            assert begun.wait(HANG_SECONDS)
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        go_on.set()
        assert get(f"{url}/metrics")[0] == 200
    assert (capsys.readouterr().err, caplog.messages) == ("", [])


def test_an_answer_that_fails_is_one_warning(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    def ready() -> bool:
        raise KeyError("a bug")

    serving = exporter.serve(CollectorRegistry(), "127.0.0.1", 0, ready)
    with pytest.raises((OSError, http.client.HTTPException)):
        urllib.request.urlopen(f"http://127.0.0.1:{serving.port}/ready", timeout=HANG_SECONDS)
    serving.close()
    assert (capsys.readouterr().err, caplog.messages) == ("", ["the answer to 127.0.0.1 failed"])


def test_metrics_are_those_of_the_registry_given_and_no_others() -> None:
    registry = CollectorRegistry()
    Gauge("pscluster_answer", "Of everything", registry=registry).set(42)
    with exporting(registry, [True]) as url:
        status, kind, text = get(f"{url}/metrics?name[]=ignored")
        assert (status, kind.partition(";")[0]) == (200, "text/plain")
        assert [family.name for family in text_string_to_metric_families(text)] == ["pscluster_answer"]
        _, kind, text = get(f"{url}/metrics", "application/openmetrics-text; version=1.0.0")
        assert kind.startswith("application/openmetrics-text")
        assert text.endswith("# EOF\n")
        assert get(f"{url}/")[0] == 404


def test_what_the_cluster_itself_reads_is_no_prometheus_that_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[str] = []
    serving = exporter.serve(CollectorRegistry(), "127.0.0.1", 0, lambda: True)

    def one() -> nullcontext[None]:
        counted.append("a scrape")
        return nullcontext()

    monkeypatch.setattr(serving.scrapes, "one", one)
    try:
        assert role_metrics(f"127.0.0.1:{serving.port}") == []
        assert counted == []
        get(f"http://127.0.0.1:{serving.port}/metrics")
        assert counted == ["a scrape"]
    finally:
        serving.close()


def test_an_exporter_answers_on_ipv6_and_frees_its_port() -> None:
    needs.possible("" if socket.has_dualstack_ipv6() else "this machine has no IPv6")
    with exporting(CollectorRegistry(), [True], "::1") as url:
        assert get(f"{url}/ready")[0] == 200
        port = int(url.rpartition(":")[2])
    with socket.create_server(("::1", port), family=socket.AF_INET6):
        pass


def test_a_taken_port_is_an_error_of_the_system() -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder, pytest.raises(OSError, match="in use"):
        exporter.serve(CollectorRegistry(), "127.0.0.1", holder.getsockname()[1], lambda: True)


def test_every_process_tells_about_itself_its_node_and_its_build() -> None:
    registry, identity = CollectorRegistry(auto_describe=False), Identity("worker", 3)
    meter = standard.register(
        registry, identity, metrics_port=9201, server="lean", ready=lambda: True, cost=Cost(identity)
    )
    families = {family.name: family for family in registry.collect()}
    meter.close()
    for name in (
        "pscluster_process_anonymous_bytes",
        "pscluster_process_file_backed_bytes",
        "pscluster_process_cpu_seconds",
        "pscluster_process_start_time_seconds",
        "pscluster_node_memory_total_bytes",
        "pscluster_node_memory_available_bytes",
        "pscluster_node_cpus",
    ):
        (sample,) = families[name].samples
        assert sample.value > 0, name
        assert sample.labels == {"role": "worker", "task": "3"}
    (build,) = families["pscluster_build_info"].samples
    assert build.value == 1
    assert build.labels["version"] == __version__
    assert build.labels["tensorflow"].startswith("2.")
    assert build.labels["server"] == "lean"
    assert all(name.startswith("pscluster_") for name in families)


def test_what_the_exporter_computes_is_counted() -> None:
    registry, identity = CollectorRegistry(), Identity("ps", 0)
    cost = Cost(identity)
    registry.register(cost)
    serving = exporter.serve(registry, "127.0.0.1", 0, lambda: True, cost=cost)
    try:
        seen = [0.0]
        for _ in range(20):
            (family,) = text_string_to_metric_families(get(f"http://127.0.0.1:{serving.port}/metrics")[2])
            seen.append(family.samples[0].value)
    finally:
        serving.close()
    assert family.name == "pscluster_exporter_cpu_seconds"
    assert seen == sorted(seen)
    assert seen[-1] > 0


def test_memory_is_read_in_bytes() -> None:
    status = "Name:\tpython\nVmRSS:\t  352648 kB\nRssAnon:\t   83684 kB\nRssFile:\t  267306 kB\nVmSwap:\t       0 kB\n"
    assert memory_bytes(status) == {"RssAnon": 83684 * 1024, "RssFile": 267306 * 1024, "VmSwap": 0}


def test_the_temperature_is_the_hottest_of_the_processor() -> None:
    # This machine has no sensor; a Pi has cpu_thermal, a PC coretemp beside those of its disks.
    def readings(*celsius: float) -> list[SimpleNamespace]:
        return [SimpleNamespace(current=value) for value in celsius]

    assert processor_celsius({"cpu_thermal": readings(48.3)}) == 48.3
    assert processor_celsius({"nvme": readings(70.0), "coretemp": readings(51.0, 63.0, 55.0)}) == 63.0
    assert processor_celsius({"nvme": readings(70.0)}) is None
    assert processor_celsius({}) is None
