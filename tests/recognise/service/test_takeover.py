"""A running service takes promotions and rollbacks over, and no request and no session fails."""

from pathlib import Path

import numpy as np
import pytest

from core.exported import open_model
from tests.recognise.exports import export as export_of_readings
from tests.recognise.readings import walk
from tests.recognise.service.exports import export, logits, windows
from tests.recognise.service.moving import (
    Asker,
    Walker,
    swapped,
    under_way,
    wait_for_answers,
)
from tests.recognise.service.running import (
    PATH,
    as_json,
    served,
    service,
    wait_until_served,
)

SESSIONS = 8
HELLO = {"hop": 20, "votes": 1, "of": 1}


def test_a_promotion_and_a_rollback_under_load_drop_no_request_and_no_session(
    tmp_path: Path,
) -> None:
    """Each label and each answer is that of the version that it names."""
    folders = [export_of_readings(tmp_path / "export-1"), swapped(tmp_path / "export-2")]
    given = np.random.default_rng(0).normal(size=(3, 128, 9)).astype(np.float32)
    wanted = {number: open_model(each).logits(given) for number, each in enumerate(folders, 1)}
    with service(tmp_path, "--model", str(folders[0])) as running:
        walkers = [Walker(lambda: [running], walk(40_000), **HELLO) for _ in range(SESSIONS)]
        askers = [Asker(running, given, wanted) for _ in range(4)]

        def all_get(version: int) -> None:
            wait_until_served(running, version)
            wait_for_answers(askers, version, 20)
            wait_for_answers(walkers, version, 3)

        with under_way(*walkers, *askers):
            all_get(1)
            running.versions.promote(folders[1])
            all_get(2)
            running.versions.rollback()
            all_get(1)
        figures = running.metrics()
    takeovers = [figures[f'takeovers_total{{result="{each}"}}'] for each in ("taken", "refused")]
    assert takeovers == [2, 0]
    assert [one.wrong for one in walkers] + [one.wrong for one in askers] == [[]] * (SESSIONS + 4)
    for walker in walkers:
        assert walker.moves == 0
        version = 1
        for found in walker.events:
            if found["event"] == "version":
                version = found["version"]
            elif found["event"] == "label":
                expected = (version, ("MOVING", "STILL")[version - 1])
                assert (found["version"], found["label"]) == expected
            else:
                assert found["event"] == "changed"
        assert np.count_nonzero(np.diff(walker.versions)) == 2


def test_the_version_before_still_answers_whoever_names_it(tmp_path: Path) -> None:
    export(tmp_path / "export-2", 2.0)
    with served(tmp_path) as running, running.client() as client:
        running.versions.promote(tmp_path / "export-2")
        wait_until_served(running, 2)
        assert client.get(PATH).json()["versions"] == ["1", "2"]
        for version in ("1", "2"):
            asked = client.post(f"{PATH}/versions/{version}/infer", json=as_json(windows(1)))
            answer = asked.json()
            assert answer["model_version"] == version
            wanted = logits(windows(1), float(version))[0].tolist()
            assert answer["outputs"][0]["data"] == pytest.approx(wanted, rel=1e-4, abs=1e-5)
