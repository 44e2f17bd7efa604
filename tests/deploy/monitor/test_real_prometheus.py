"""A real Prometheus over a real cluster: every expression has data, of panels and of rules.

Nothing here is a Pi or a GPU, has NFS or a sensor that can be counted on: what only those tell, and
nothing else, comes from a recorded text that a process of its own serves, as one more target. What
is about a service has a test of its own (test_watched_service.py).
"""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread

import pytest

from cluster.programs.program import ProgramRequest
from core.control.own_state import state_of
from deploy.monitor.files import dashboards
from tests.cluster.jobs.cluster import Cluster, cluster_of, own_recordings
from tests.deploy.monitor.expressions import ALERTS, RECORDINGS, SERVICE, expressions_of, filled_in
from tests.deploy.monitor.watched import Prometheus, monitored, recorded
from tests.hang import HANG_SECONDS
from tests.ports import free_port

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

RECORDED = Path(__file__).with_name("recorded_pi.txt")
NODES = ("localhost", "rpi09")
ENDLESS = ("jobs.pi.samples=1000000000000000", "jobs.train.epochs=100000")
"""Jobs that end once Prometheus has their data, however fast the machine is."""
RATE_INTERVAL = "1m"
"""Grafana makes 4 s of a scrape a second; a busy machine misses scrapes."""
ASKED_AGAIN_SECONDS = 2.0
PANELS = [
    (where, expression)
    for text in dashboards().values()
    for where, expression in expressions_of(json.loads(text))
    if SERVICE not in expression
]
RECORDED_SERIES = [name for name in RECORDINGS if SERVICE not in name]
OF_PI = [expression for _, expression in PANELS if "pscluster_pi_" in expression]
OF_PROGRAM = [expression for _, expression in PANELS if "pscluster_program_" in expression]
OF_SWEEP = [expression for _, expression in PANELS if "pscluster_sweep_" in expression]
SWEEP = "{base: {jobs.train.epochs: 100000}, grid: {jobs.train.model.hidden: [8]}, seeds: [0, 1]}\n"
APP = """
import numpy as np
import tensorflow as tf


def init(seed):
    random = np.random.default_rng(seed)
    return {"kernel": random.normal(0, 0.1, (64 * 6, 4)).astype("float32")}


def forward(parameters, statistics, x, training, seed):
    return tf.reshape(x, [-1, 64 * 6]) @ parameters["kernel"], {}


def metrics(y, outputs):
    return {"certainty": tf.reduce_max(tf.nn.softmax(outputs), axis=-1)}
"""
"""One with a figure of its own."""
COMPARED = {
    alert["alert"]: alert["expr"].split()[0] for alert in ALERTS if SERVICE not in alert["expr"]
}


@dataclass
class Story:
    """What Prometheus has of a pi job, a program, a sweep, and of an app's training in which a
    worker is killed."""

    prometheus: Prometheus
    begun: float
    found: set[str] = field(default_factory=set)

    def has(self, expression: str) -> bool:
        """Whether it gave a number at any time until now, of any node."""
        if expression not in self.found:
            filled = {filled_in(expression, "local", node, RATE_INTERVAL) for node in NODES}
            if any(self.prometheus.values(one, self.begun, time.time()) for one in filled):
                self.found.add(expression)
        return expression in self.found

    def wait_for(self, expressions: Sequence[str]) -> None:
        """Until each of them has data, or for as long as nothing takes: then the tests name those
        without."""
        end = time.monotonic() + HANG_SECONDS
        while (
            not all(self.has(expression) for expression in expressions) and time.monotonic() < end
        ):
            time.sleep(ASKED_AGAIN_SECONDS)


@contextmanager
def endless(
    cluster: Cluster, job: str, *settings: str, flags: Sequence[str] = ()
) -> Iterator[None]:
    """A job that runs until the end of the block. Its lines are read: a full pipe would stop it."""
    with cluster.begun(job, *ENDLESS, *settings, flags=flags) as running:
        reader = Thread(target=running.lines.extend, args=(running.process.stderr,), daemon=True)
        reader.start()
        yield
        running.interrupt()
        reader.join()
        done = running.end()
    assert done.code == 130, done.errors


@pytest.fixture(scope="module")
def story() -> Iterator[Story]:
    with cluster_of(workers=2) as cluster, recorded(RECORDED) as pi:
        settings = [f"monitor.port={free_port()}", "monitor.scrape_seconds=1"]
        begun = time.time()
        with monitored(cluster.inventory.path, settings) as prometheus:
            targets = state_of(cluster.inventory.path, "local") / "monitor/targets"
            entry = {
                "targets": [pi],
                "labels": {"cluster": "local", "node": "rpi09", "process": "worker:9"},
            }
            # Renamed: Prometheus looks at the moment the file appears.
            (targets / "recorded.part").write_text(json.dumps([entry]))
            (targets / "recorded.part").rename(targets / "recorded.json")
            prometheus.until('sum(max_over_time(up{job="pscluster"}[1m])) == 4')
            story = Story(prometheus, begun)
            with endless(cluster, "pi"):
                story.wait_for(OF_PI)
            own_recordings(cluster.folder / "mine.npz")
            (cluster.folder / "program.py").write_text("while True: pass\n")
            request = ProgramRequest(str(cluster.folder / "program.py"))
            with endless(cluster, "run", flags=["--program", request.to_text()]):
                story.wait_for(OF_PROGRAM)
            (cluster.folder / "sweep.yaml").write_text(SWEEP)
            recordings = f"jobs.train.data.source={cluster.folder / 'mine.npz'}"
            with endless(
                cluster, "sweep", recordings, flags=["--sweep", str(cluster.folder / "sweep.yaml")]
            ):
                story.wait_for(OF_SWEEP)
            (cluster.folder / "app.py").write_text(APP)
            own = [
                f"jobs.train.{key}={cluster.folder / file}"
                for key, file in (("app", "app.py"), ("data.source", "mine.npz"))
            ]
            with endless(cluster, "train", *own, "jobs.train.checkpoint.every_seconds=2"):
                prometheus.until("pscluster_train_epoch > 0")
                cluster.kill("worker:1")
                prometheus.until('process:pscluster_up:max{process="worker:1"} == 0')
                cluster.start("worker:1")
                story.wait_for(
                    [
                        *(expression for _, expression in PANELS),
                        *RECORDED_SERIES,
                        *COMPARED.values(),
                    ]
                )
            yield story


def test_every_expression_of_every_panel_has_data(story: Story) -> None:
    assert len(PANELS) > 100
    assert [where for where, expression in PANELS if not story.has(expression)] == []
    assert not story.has('pscluster_train_loss{cluster="$cluster", split="no such split"}')
    assert [name for name in RECORDED_SERIES if not story.has(name)] == []
    assert [alert for alert, series in COMPARED.items() if not story.has(series)] == []


def test_prometheus_evaluates_every_rule_without_an_error(story: Story) -> None:
    rules = [rule for group in story.prometheus.ask("rules")["groups"] for rule in group["rules"]]
    assert len(rules) == len(RECORDINGS) + len(ALERTS)
    assert [(rule["name"], rule.get("lastError")) for rule in rules if rule["health"] != "ok"] == []
