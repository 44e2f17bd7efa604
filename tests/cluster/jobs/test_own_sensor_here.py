"""A sensor of nine axes at 100 Hz goes the whole way."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from cluster.export import __main__ as exporting
from cluster.export import graph
from cluster.jobs import session
from cluster.jobs.train import TrainRun
from core.data.show.__main__ import main as show
from core.ground.plausible import STANDARD_GRAVITY
from tests.cluster.jobs.kit import conducted, inventory_in
from tests.recognise.readings import walk
from tests.recognise.service.running import Service, service
from tests.recognise.service.streaming import labels
from tests.recognise.service.streaming import session as live
from tests.tables import table

PEOPLE = ("anna", "bert", "cleo", "dora", "emil", "fay")
TURNS = {"still": 0.0, "turning": 3.0}
"""Each with the field's turns in ten seconds: the magnetometer alone tells them apart."""
HERTZ = 100.0
FORMAT = table("cluster/jobs/own_sensor")
KINDS = {"acc": "acceleration", "gyro": "rotation", "mag": "magnetic field"}
UNITS = [each["unit"] for each in FORMAT["channels"]]
CHANNELS = [f"{name}_{axis}" for name in KINDS for axis in "xyz"]


def readings(label: str, seed: int, hertz: float = HERTZ, count: int = 2000) -> np.ndarray:
    """Seconds, then acceleration in m/s^2, rotation in deg/s and a field of 50 uT, (n, 10)."""
    moved = walk(count, seed=seed, hz=hertz)
    angle = 2 * np.pi * TURNS[label] / 10 * moved.times
    field = 50.0 * np.stack([np.cos(angle), np.sin(angle), 0.4 + 0 * angle], axis=1)
    field += np.random.default_rng(seed).normal(0, 1.0, field.shape)
    parts = [moved.acceleration * STANDARD_GRAVITY, np.rad2deg(moved.rotation), field]
    return np.concatenate([moved.times[:, np.newaxis], *parts], axis=1)


def write(file: Path, rows: np.ndarray) -> Path:
    """Semicolons and decimal commas, as the format says."""
    lines = ["ms;ax;ay;az;gx;gy;gz;mx;my;mz"]
    for row in rows:
        cells = [f"{1000 * row[0]:.3f}", *(f"{value:.5f}" for value in row[1:])]
        lines.append(";".join(cells).replace(".", ","))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(lines))
    return file


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recordings of six people, a model of them, and its export."""
    folder = tmp_path_factory.mktemp("own")
    own = folder / "own.yaml"
    own.write_text(yaml.safe_dump(FORMAT))
    for seed, person in enumerate(PEOPLE):
        for label in TURNS:
            write(folder / "walks" / person / f"{label}.csv", readings(label, seed))
    data = {"source": folder / "walks", "format": own, "window_steps": 200, "window_stride": 50}
    settings = [f"jobs.train.data.{key}={value}" for key, value in data.items()]
    small = ("epochs=8", "model.hidden=8", "validation_subjects=1", "batch_size=20")
    settings += [f"jobs.train.{each}" for each in (*small, "model.name=residual")]
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        patched.setattr(session, "one_thread_an_operation", lambda: None)
        patched.setattr(graph, "one_thread", lambda: None)
        inventory = inventory_in(folder, "jobs.train.mode=single", *settings)
        run, _ = conducted(TrainRun, inventory, folder)
        words = [f"--run={run}", f"--out={folder / 'export'}", "--to=onnx", "--quiet"]
        assert exporting.main(words) == 0
    (folder / "run").symlink_to(run)
    return folder


@pytest.mark.long
def test_it_is_shown_trained_and_exported_with_all_that_it_is(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(here / "cache"))
    options = json.dumps({"format": str(here / "own.yaml")})
    assert show([str(here / "walks"), "--options", options]) == 0
    assert "mag_x" in capsys.readouterr().out
    result = json.loads((here / "run" / "result.json").read_bytes())
    model = json.loads((here / "run" / "model" / "model.json").read_bytes())
    export = json.loads((here / "export" / "export.json").read_bytes())
    units = [unit for unit in ("g", "rad/s", "uT") for _ in "xyz"]
    assert result["final"]["accuracy"] == 1.0
    of_run = result["dataset"]
    assert of_run["channel_names"] == CHANNELS
    assert (of_run["people"], of_run["sampling_hz"], of_run["filters"]) == (6, HERTZ, "none")
    stored = model["signals"]
    taken = export["input"]
    for said in (of_run, stored, taken):
        assert (said["units"], said["sensors"]) == (units, KINDS)
    assert stored["channels"] == taken["channels"] == CHANNELS
    assert (export["people"], export["sampling_hz"], export["stride"]) == (6, HERTZ, 50)
    digests = {of_run["format_sha256"], stored["format_sha256"], export["format_sha256"]}
    assert len(digests) == 1
    assert len(digests.pop()) == 64


@pytest.fixture(scope="module")
def running(here: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    with service(tmp_path_factory.mktemp("service"), "--model", str(here / "export")) as found:
        yield found


@pytest.mark.long
@pytest.mark.parametrize("label", TURNS)
def test_a_live_session_is_labelled(running: Service, label: str) -> None:
    rows = readings(label, 9)
    order = [*range(6, 9), *range(3), *range(3, 6)]
    names = [CHANNELS[place] for place in order]
    units = [UNITS[place // 3] for place in order]
    hello = {"channels": [*names, "lux"], "units": [*units, "none"]}
    with live(running, **hello) as (connection, ready):
        assert (ready["sampling_hz"], ready["channels"]) == (HERTZ, CHANNELS)
        for begin in range(0, len(rows), 100):
            part = rows[begin : begin + 100]
            values = [[*row[order].tolist(), 7.0] for row in part[:, 1:]]
            connection.send(json.dumps({"times": part[:, 0].tolist(), "values": values}))
        found = labels(connection, 30)
    assert {one["label"] for one in found if one["event"] == "label"} - {None} == {label}
