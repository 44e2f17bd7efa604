"""What ran where and how busy it was: shares of two readings, and who did almost nothing."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from cluster.inventory.task import Task
from cluster.jobs import busy
from cluster.jobs.busy import BusyMeter, Reading, Share, idle_lines
from tests.inventory.cases import THREE_NODES, read

SHARE = Share("worker:0", "rpi02", True, None, "x86_64", 4, 40.0, 0.5, None)


def meter(monkeypatch: pytest.MonkeyPatch, *answers: Mapping[str, Reading | None], seconds: float = 100.0) -> BusyMeter:
    """One that read these answers of the roles, `seconds` apart."""
    inventory, given = read(THREE_NODES), iter(answers)
    present: dict[str, Reading | None] = {}

    def role(task: Task, timeout_seconds: float) -> Reading | None:
        return present[task.name]

    clock = iter([0.0, seconds])
    monkeypatch.setattr(busy, "read_role", role)
    made = BusyMeter(inventory, inventory.of_role("worker"))
    monkeypatch.setattr("cluster.jobs.busy.time.monotonic", lambda: next(clock))
    monkeypatch.setattr(busy, "of_all", lambda tasks, ask, *_: [ask(task, 1.0) for task in tasks])
    present.update(next(given))
    made.__enter__()
    present.update(next(given))
    made.__exit__(None, None, None)
    return made


def test_shares_are_of_all_cores_and_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, gpu = Reading(50.0, 4, "arm"), Reading(10.0, 8, "x86", "gpu:1", 5.0)
    after = {"worker:0": replace(cpu, cpu_seconds=250.0),
             "worker:1": replace(gpu, cpu_seconds=90.0, device_seconds=85.0)}  # fmt: skip
    found = meter(monkeypatch, {"worker:0": cpu, "worker:1": gpu}, after)
    first, second, coordinator = found.shares
    assert (first.task, first.node, first.cpu_seconds, first.cpu_share) == ("worker:0", "rpi02", 200.0, 0.5)
    assert (second.device, second.device_share, second.cpu_share) == ("gpu:1", 0.8, 0.1)
    assert coordinator.task == "coordinator:0"
    assert not coordinator.computes
    described = found.describe()
    assert described["seconds"] == 100.0
    assert described["tasks"][0]["device_share"] is None


def test_a_role_that_was_restarted_counts_from_its_start_and_a_lost_one_not_at_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = {"worker:0": Reading(500.0, 4), "worker:1": Reading(1.0, 4)}
    first, second, _ = meter(monkeypatch, before, {"worker:0": Reading(40.0, 4), "worker:1": None}).shares
    assert first.cpu_share == pytest.approx(0.1)
    assert (second.cpu_seconds, second.cpu_share) == (None, None)


def test_another_process_is_known_by_its_start_and_one_that_did_not_answer_has_no_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = {"worker:0": Reading(10.0, 4, started=1.0), "worker:1": None}
    after = {"worker:0": Reading(40.0, 4, started=2.0), "worker:1": Reading(90_000.0, 4)}
    first, second, _ = meter(monkeypatch, before, after).shares
    assert first.cpu_seconds == 40.0, "of the new process, although it has used more than the old one had"
    assert (second.cpu_seconds, second.cpu_share, second.cores) == (None, None, 4), "what it did before is not ours"


def test_who_did_almost_nothing_is_a_line() -> None:
    idle = replace(SHARE, task="worker:1", node="rpi03", cpu_share=0.0)
    gpu = replace(SHARE, task="worker:2", device="gpu:2", cpu_share=0.01, device_share=0.004)
    server = replace(SHARE, task="ps:0", computes=False, cpu_share=0.001)
    unknown = replace(SHARE, task="worker:3", cpu_share=None)
    lines = idle_lines([SHARE, idle, gpu, server, unknown], 100.0)
    assert len(lines) == 2
    assert lines[0].startswith("gpu:2 of worker:2 on rpi02 was busy 0.4% of the training")
    assert lines[1].startswith("worker:1 on rpi03 used 0.0% of its cores over the training, the busiest worker 50%")
    assert idle_lines([SHARE, idle], 5.0) == [], "too short to say"
    assert idle_lines([SHARE, replace(idle, cpu_share=0.2)], 100.0) == []
