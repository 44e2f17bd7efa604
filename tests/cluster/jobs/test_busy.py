"""What ran where and how busy it was: shares of two readings, and who did almost nothing."""

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client.samples import Sample

from cluster.jobs import busy, roles
from cluster.jobs.busy import BusyMeter, Share, idle_lines
from cluster.jobs.roles import UsageSample
from tests.core.inventory.cases import THREE_NODES, read
from tests.tables import table

SHARE = Share("worker:0", "rpi02", True, None, "x86_64", 4, 40.0, 0.5, None)


Answers = Mapping[str, UsageSample | None]


@pytest.fixture
def meter(monkeypatch: pytest.MonkeyPatch) -> Callable[[Answers, Answers], BusyMeter]:
    """What makes a meter that read these answers of the roles, 100 seconds apart."""
    inventory = read(THREE_NODES)

    def measured(before: Answers, after: Answers) -> BusyMeter:
        present = dict(before)
        seconds = iter([0.0, 100.0])
        monkeypatch.setattr(busy, "read_role", lambda task, timeout: present[task.name])
        monkeypatch.setattr(
            busy, "of_all", lambda tasks, ask, *_: [ask(each, 1.0) for each in tasks]
        )
        made = BusyMeter(inventory, inventory.of_role("worker"))
        monkeypatch.setattr("cluster.jobs.busy.time.monotonic", lambda: next(seconds))
        with made:
            present.update(after)
        return made

    return measured


def sample(values: Any) -> UsageSample | None:
    return values and UsageSample(**values)


def test_shares_are_of_all_cores_and_of_the_device(meter: Callable[..., BusyMeter]) -> None:
    before, after = (
        {task: sample(one) for task, one in reading.items()}
        for reading in table("cluster/jobs/rows", "two readings")
    )
    found = meter(before, after)
    first, second, coordinator = found.shares
    assert (first.task, first.node) == ("worker:0", "rpi02")
    assert (first.cpu_seconds, first.cpu_share) == (200.0, 0.5)
    assert (second.device, second.device_share, second.cpu_share) == ("gpu:1", 0.8, 0.1)
    assert (coordinator.task, coordinator.computes) == ("coordinator:0", False)
    described = found.describe()
    assert described["seconds"] == 100.0
    assert described["tasks"][0]["device_share"] is None


USED = table("cluster/jobs/rows", "used")


@pytest.mark.parametrize("name", USED)
def test_what_a_role_used(meter: Callable[..., BusyMeter], name: str) -> None:
    other = UsageSample(1.0, 4)
    *readings, expected = USED[name]
    before, after = ({"worker:0": sample(one), "worker:1": other} for one in readings)
    first, *_ = meter(before, after).shares
    assert [first.cpu_seconds, first.cpu_share, first.cores] == expected


def test_a_role_that_does_not_say_its_seconds_says_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    samples = [
        Sample(roles.BUILD, {"processor": "x86_64"}, 1.0),
        Sample(roles.CORES, {}, 4.0),
    ]
    monkeypatch.setattr(roles, "role_metrics", lambda *_: samples)
    task = read(THREE_NODES).task("worker", 0)
    reading = roles.read_role(task, 1.0)
    assert reading == UsageSample(None, 4, "x86_64")
    with closing(roles.RoleReader([], print, lambda: False)) as reader:
        twice = [reader._read(task) for _ in range(2)]
    assert [(seen.answers, seen.processor, seen.busy) for seen in twice] == [
        (True, "x86_64", None)
    ] * 2
    samples.clear()
    assert roles.read_role(task, 1.0) is None, "another program has its port"


def test_who_did_almost_nothing_is_a_line() -> None:
    idle = replace(SHARE, task="worker:1", node="rpi03", cpu_share=0.0)
    gpu = replace(SHARE, task="worker:2", device="gpu:2", cpu_share=0.01, device_share=0.004)
    server = replace(SHARE, task="ps:0", computes=False, cpu_share=0.001)
    unknown = replace(SHARE, task="worker:3", cpu_share=None)
    lines = idle_lines([SHARE, idle, gpu, server, unknown], 100.0)
    assert len(lines) == 2
    assert lines[0].startswith("gpu:2 of worker:2 on rpi02 was busy 0.4% of the training")
    assert lines[1].startswith(
        "worker:1 on rpi03 used 0.0% of its cores over the training, the busiest worker 50%"
    )
    assert idle_lines([SHARE, idle], 5.0) == [], "too short to say"
    assert idle_lines([SHARE, replace(idle, cpu_share=0.2)], 100.0) == []
    crowd = idle_lines([SHARE, *[idle] * 127], 100.0)
    assert (len(crowd), crowd[-1]) == (9, "119 more workers used as little")
