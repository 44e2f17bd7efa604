"""A real Prometheus over a real cluster: every expression of every panel, annotation and rule has data.

Nothing here is a Pi, has NFS or a sensor that can be counted on: what only those tell, and nothing else, comes from a
recorded text that a process of its own serves, as one more target.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from deploy.monitor.alerts import ALERTS
from deploy.monitor.dashboards import dashboards
from deploy.monitor.recordings import RECORDINGS
from tests.deploy.monitor.expressions import expressions_of, filled_in
from tests.deploy.monitor.watched import Prometheus, monitored, recorded
from tests.jobs.cluster import SMALL, cluster_of, free_port, own_recordings

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

RECORDED = Path(__file__).with_name("recorded_pi.txt")
NODES = ("localhost", "rpi09")
SAMPLES = 3_000_000_000
"""Some seconds of two workers: a rate needs two scrapes while points are drawn."""
EPOCHS = 60
RATE_INTERVAL = "15s"
"""What Grafana makes of a scrape a second and a small panel would be 4 s; a busy machine misses some."""


@dataclass
class Story:
    """What was watched: a pi job and a training in which a worker was killed."""

    prometheus: Prometheus
    begun: float
    ended: float

    def has(self, expression: str) -> bool:
        """Whether it gave a number at any time, of any node."""
        filled = {filled_in(expression, "local", node, RATE_INTERVAL) for node in NODES}
        return any(self.prometheus.values(one, self.begun, self.ended) for one in filled)


@pytest.fixture(scope="module")
def story() -> Iterator[Story]:
    with cluster_of(workers=2) as cluster, recorded(RECORDED) as pi:
        settings = [f"monitor.port={free_port()}", "monitor.scrape_seconds=1"]
        begun = time.time()
        with monitored(cluster.inventory.path, settings) as prometheus:
            targets = cluster.folder / ".pscluster/local/monitor/targets"
            entry = {"targets": [pi], "labels": {"cluster": "local", "node": "rpi09", "process": "worker:9"}}
            # Renamed: Prometheus looks at the moment the file appears.
            (targets / "recorded.part").write_text(json.dumps([entry]))
            (targets / "recorded.part").rename(targets / "recorded.json")
            prometheus.until('sum(up{job="pscluster"} == 1) == 4')
            assert cluster.job("pi", f"jobs.pi.samples={SAMPLES}").code == 0
            own_recordings(cluster.folder / "mine.npz")
            training = (
                *SMALL,
                f"jobs.train.data.source={cluster.folder / 'mine.npz'}",
                f"jobs.train.epochs={EPOCHS}",
                "jobs.train.checkpoint.every_seconds=2",
            )
            with cluster.begun("train", *training) as job:
                prometheus.until("pscluster_train_epoch > 0")
                cluster.kill("worker:1")
                prometheus.until('process:pscluster_up:max{process="worker:1"} == 0')
                cluster.start("worker:1")
                done = job.end()
            assert done.code == 0, done.errors
            yield Story(prometheus, begun, time.time())


def test_every_expression_of_every_panel_has_data(story: Story) -> None:
    everything = [one for text in dashboards().values() for one in expressions_of(json.loads(text))]
    assert len(everything) > 100
    assert [where for where, expression in everything if not story.has(expression)] == []
    assert not story.has('pscluster_train_loss{cluster="$cluster", split="no such split"}')


def test_every_recorded_series_has_data_and_so_has_what_each_alert_looks_at(story: Story) -> None:
    assert [recording.name for recording in RECORDINGS if not story.has(recording.name)] == []
    assert [alert.name for alert in ALERTS if not story.has(alert.series)] == []


def test_prometheus_evaluates_every_rule_without_an_error(story: Story) -> None:
    rules = [rule for group in story.prometheus.ask("rules")["groups"] for rule in group["rules"]]
    assert len(rules) == len(RECORDINGS) + len(ALERTS)
    assert [(rule["name"], rule.get("lastError")) for rule in rules if rule["health"] != "ok"] == []


def test_the_recorded_pi_s_troubles_are_told(story: Story) -> None:
    story.prometheus.until('ALERTS{alertname="PsclusterUnderVoltage", alertstate="firing", node="rpi09"}')


def test_the_targets_of_the_cluster_are_those_of_the_inventory(story: Story) -> None:
    found = {target["labels"]["process"] for target in story.prometheus.ask("targets", state="active")["activeTargets"]}
    assert found == {"ps:0", "worker:0", "worker:1", "coordinator:0", "worker:9"}
