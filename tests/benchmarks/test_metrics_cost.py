"""The arithmetic of `benchmarks.metrics_cost`, and its reader against real exporters."""

import time

import pytest
from prometheus_client import CollectorRegistry

from benchmarks.metrics_cost import Reader, Spent, percent
from core.metrics.exporter import serve
from core.metrics.instruments import Identity
from core.metrics.process import Cost, ProcessCollector
from tests.hang import HANG_SECONDS
from tests.ports import free_port


def test_the_share_is_that_of_all_processes_together() -> None:
    assert percent([Spent(0.1, 10.0), Spent(0.2, 50.0)]) == pytest.approx(0.5)


def test_a_reader_waits_for_who_is_not_there_yet_and_counts_from_its_first_reading() -> None:
    port = free_port()
    identity = Identity("coordinator", 0)
    registry = CollectorRegistry()
    cost = Cost(identity)
    registry.register(cost)
    registry.register(ProcessCollector(identity))
    cost.add(100.0)
    with Reader({"coordinator:0": f"127.0.0.1:{port}"}, 0.01) as reader:
        exporter = serve(registry, "127.0.0.1", port, lambda: True, cost=cost)
        try:
            end = time.monotonic() + HANG_SECONDS
            while len(reader.readings["coordinator:0"]) < 3:
                assert time.monotonic() < end
        finally:
            exporter.close()
    spent = reader.spent()["coordinator:0"]
    assert 0 < spent.metrics < 100
