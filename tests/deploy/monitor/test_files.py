"""The folder that `fab deploy monitor` writes."""

import json
import re
from pathlib import Path

import pytest
import yaml

from core.ground.errors import ClusterError
from core.inventory import load
from deploy.common.project import ROOT
from deploy.monitor.files import (
    all_files,
    find_prometheus,
    prometheus_command,
    prometheus_files,
    url,
    write,
)
from tests.core.inventory.cases import edited, machine, read
from tests.deploy.converge.pi import thesis
from tests.deploy.tables import Tables

rows = Tables(__file__)


def test_every_process_is_a_target_with_its_place() -> None:
    entries = json.loads(prometheus_files(thesis())["targets/pscluster-thesis.json"])
    labels = [entry["labels"] for entry in entries]
    assert {label for one in labels for label in one} == {"cluster", "node", "process"}
    assert {"cluster": "thesis", "node": "rpi04", "process": "worker:3"} in labels
    addresses = [address for entry in entries for address in entry["targets"]]
    assert addresses == [task.metrics_address for task in thesis().tasks()]


@rows("seconds", "timeout")
def test_a_scrape_ends_before_the_next(seconds: int, timeout: str) -> None:
    text = prometheus_files(thesis(f"monitor.scrape_seconds={seconds}"))["prometheus.yml"]
    assert yaml.safe_load(text)["global"]["scrape_timeout"] == timeout


@pytest.mark.parametrize(
    ("service_state", "jobs"),
    [
        (None, {"pscluster": None}),
        (Path("/state/_service"), {"pscluster": None, "pscluster-service": "thesis"}),
    ],
)
def test_services_are_of_the_local_prometheus_alone(
    service_state: Path | None, jobs: dict[str, str | None]
) -> None:
    text = prometheus_files(thesis(), service_state)["prometheus.yml"]
    found: dict[str, str | None] = {}
    for job in yaml.safe_load(text)["scrape_configs"]:
        # Who takes the port of a killed process hears no secret.
        assert not re.search("auth|bearer|token|header", str(job))
        found[job["job_name"]] = None
        for relabelled in job.get("relabel_configs", []):
            assert relabelled["target_label"] == "cluster"
            found[job["job_name"]] = relabelled["replacement"]
    assert found == jobs


def test_two_clusters_in_one_folder_have_the_same_rules(tmp_path: Path) -> None:
    rare = thesis("cluster=rare", "jobs.train.checkpoint.every_seconds=900")
    write(tmp_path, prometheus_files(thesis("jobs.train.checkpoint.every_seconds=60")))
    changed = write(tmp_path, prometheus_files(rare))
    assert [path.name for path in changed] == ["pscluster-rare.json"]
    assert len(list((tmp_path / "targets").iterdir())) == 2


def test_grafana_asks_the_monitor_s_node_or_this_machine() -> None:
    watched = edited(
        ("roles: [worker]\n  - name: rpi03", "roles: [worker, monitor]\n  - name: rpi03")
    )
    assert url(read(watched, on=machine())) == "http://192.168.1.17:9090"
    assert url(thesis("monitor.port=9091")) == "http://127.0.0.1:9091"
    text = all_files(thesis())["grafana/provisioning/datasources/pscluster.yml"]
    (source,) = yaml.safe_load(text)["datasources"]
    assert "uid" not in source
    assert source["url"] == "http://127.0.0.1:9090"


def test_writing_again_writes_what_changed(tmp_path: Path) -> None:
    files = all_files(thesis())
    assert len(write(tmp_path, files)) == len(files)
    assert write(tmp_path, files) == ()
    changed = write(tmp_path, all_files(thesis("nodes.rpi03.address=192.168.1.99")))
    assert [path.name for path in changed] == ["pscluster-thesis.json"]
    assert not list(tmp_path.rglob("*.partial"))


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "rules").write_text("a file where a folder has to be")
    with pytest.raises(ClusterError, match="name another folder"):
        write(tmp_path, all_files(thesis()))


def test_the_local_prometheus_listens_on_loopback_alone() -> None:
    file = ROOT / "inventories/local.yaml"
    local = load(file, ["monitor.retention_days=2"], check_interfaces=False)
    words = prometheus_command(Path("/usr/bin/prometheus"), local)
    assert {
        "--web.listen-address=127.0.0.1:9090",
        "--web.config.file=web.yml",
        "--web.cors.origin=^$",
        "--storage.tsdb.retention.time=2d",
    } <= set(words)


def test_without_the_program_the_line_says_what_to_do(tmp_path: Path) -> None:
    fetched = tmp_path / "prometheus"
    with pytest.raises(ClusterError, match=r"^[^\n]*no `prometheus`[^\n]*--out DIR[^\n]*$"):
        find_prometheus(search=str(tmp_path), fetched=fetched)
    fetched.touch()
    assert find_prometheus(search=str(tmp_path), fetched=fetched).exists()
