"""Sweeps over two nodes by SSH: an app with a package, and a search."""

import json

import pytest

from cluster.apps.files import files_of_app
from core.ground.errors import ExitCode
from tests.deploy.playing import eventually
from tests.lab.two_nodes.place import HUB, NODES, Place
from tests.lab.two_nodes.test_apps import written

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]

SWEEP = """
name: halves
base: {jobs.train.epochs: 1, jobs.train.validation_subjects: 0}
grid: {jobs.train.batch_size: [20, 50]}
"""
SEARCH = """
base:
  jobs.train.epochs: 1
  jobs.train.recipe: shipped
  jobs.train.model.n_stacked_layers: 1
  jobs.train.validation_subjects: 3
search: {trials: 2, space: {jobs.train.model.hidden: [8, 16]}}
"""
ENDLESS = """
base: {jobs.train.epochs: 100000, jobs.train.validation_subjects: 0}
runs: [{}]
seeds: [0, 1]
"""
RECORD = "*-sweep/sweep.json"
LATEST = "cat $(ls -d /mnt/pscluster/runs/*-sweep/sweep.json | tail -n 1)"
AGENTS = "find /etc/systemd/system/*.wants -name 'pscluster-job@*' -printf '%f '"
BOOT_SECONDS = 240.0
EXTRAS = "/opt/pscluster/extras/environments"


def test_an_app_is_trained_on_every_node(place: Place) -> None:
    folder = place.operator.folder
    app = written(folder / "swept")
    (folder / "halves.yaml").write_text(SWEEP)
    place.operator.fab("sweep", "halves.yaml", "--set", "jobs.train.app=swept")
    record = place.operator.newest(RECORD)
    sweep = record.parent
    runs = json.loads(record.read_text())["runs"]
    assert [run["state"] for run in runs] == ["finished"] * 2
    assert {run["node"] for run in runs} == {"worker:0", "worker:1"}
    for run in runs:
        kept = json.loads((sweep / run["folder"] / "app.json").read_text())
        assert kept["digest"] == files_of_app(app).digest
        assert not (sweep / "runs" / run["id"] / "app").exists()
    for node in NODES:
        found = place.on(node, f"ls -d {EXTRAS}/*/lib/python*/site-packages/humanize")
        assert place.on(node, f"stat -c %U {found.split('/lib/')[0]}/.complete") == "root"


def test_a_search_needs_its_package_on_the_coordinators_node_alone(place: Place) -> None:
    (place.operator.folder / "search.yaml").write_text(SEARCH)
    said = place.operator.fab("sweep", "search.yaml").text
    assert "best on the validation: run 000" in said
    assert [run["state"] for run in place.operator.read(RECORD)["runs"]] == ["finished"] * 2
    find = f"ls -d {EXTRAS}/*/lib/python*/site-packages/optuna 2>/dev/null | wc -l"
    assert {node: place.on(node, find) for node in NODES} == {HUB: "1", "rpi02": "0"}


@pytest.mark.parametrize("ending", ["power cut", "reboot"])
def test_a_node_that_restarts_gets_the_next_run(place: Place, ending: str) -> None:
    """Its runner starts at boot as long as the sweep goes on, and no longer."""
    node = place.lab.node("rpi02")
    (place.operator.folder / "endless.yaml").write_text(ENDLESS)

    def runs() -> list[tuple[str, str | None]]:
        record = json.loads(place.on(HUB, LATEST))
        return [(run["state"], run["node"]) for run in record["runs"]]

    both = [("running", "worker:0"), ("running", "worker:1")]
    with place.operator.running("sweep", "endless.yaml") as sweep:
        sweep.wait_for("live page")
        eventually(lambda: sorted(runs()) == both, "each node has a run", BOOT_SECONDS)
        if ending == "power cut":
            node.crash()
        else:
            place.on(node.name, "systemctl reboot")
        eventually(lambda: ("waiting", None) in runs(), "its run waits", BOOT_SECONDS)
        if ending == "power cut":
            node.boot()
        eventually(lambda: sorted(runs()) == both, "it has a run again", BOOT_SECONDS)
        assert "-task" in place.on(node.name, AGENTS)
        place.operator.fab("job", "cancel")
        sweep.end(ExitCode.CANCELLED)
    eventually(lambda: not any(place.on(name, AGENTS) for name in NODES), "nothing is enabled")
    eventually(place.operator.well, "the roles are back", BOOT_SECONDS)
