"""A running service takes promotions and rollbacks over: no request fails, none gets the answer of another version."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from recognise.service.versions import Versions
from tests.service.exports import export, logits, windows
from tests.service.running import PATH, Service, as_json, service, state_of

SECONDS = 30.0


@dataclass
class Load:
    """What the clients got: answers by version, and everything that was wrong."""

    versions: Counter[int] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    ends: threading.Event = field(default_factory=threading.Event)

    def ask(self, service: Service, seed: int) -> None:
        given = windows(1 + seed % 3, seed)
        body = as_json(given, outputs=[{"name": "logits"}])
        with service.client() as client:
            while not self.ends.is_set():
                answer = client.post(f"{PATH}/infer", json=body)
                if answer.status_code != 200:
                    self.wrong.append(answer.text)
                    continue
                found = answer.json()
                version = int(found["model_version"])
                got = np.reshape(found["outputs"][0]["data"], (len(given), 2))
                if not np.allclose(got, logits(given, float(version)), rtol=1e-4, atol=1e-5):
                    self.wrong.append(f"version {version} answered {got.tolist()}")
                self.versions[version] += 1

    def wait_for(self, version: int) -> None:
        """Until this version answered some more requests than it has now."""
        end, wanted = time.monotonic() + SECONDS, self.versions[version] + 20
        while self.versions[version] < wanted and not self.wrong:
            assert time.monotonic() < end, (version, self.versions)
            self.ends.wait(0.02)


@contextmanager
def under_load(service: Service, clients: int = 4) -> Iterator[Load]:
    load = Load()
    threads = [threading.Thread(target=load.ask, args=(service, seed)) for seed in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield load
    finally:
        load.ends.set()
        for thread in threads:
            thread.join()


def test_promotions_and_rollbacks_under_load_drop_nothing(tmp_path: Path) -> None:
    """The export of version n answers n times the logits of version 1."""
    for number in range(1, 5):
        export(tmp_path / f"export-{number}", float(number))
    with service(tmp_path, "--model", str(tmp_path / "export-1")) as running:
        versions = Versions(state_of(tmp_path) / "models" / "har")
        with under_load(running) as load:
            load.wait_for(1)
            for number in range(2, 5):
                assert versions.promote(tmp_path / f"export-{number}").number == number
                load.wait_for(number)
            for number in range(3, 0, -1):
                assert versions.rollback().number == number
                load.wait_for(number)
        assert load.wrong == []
        assert set(load.versions) == {1, 2, 3, 4}
        with running.client() as client:
            taken = [line for line in client.get("/metrics").text.splitlines() if "takeovers_total{" in line]
            assert taken == [
                f'pscluster_service_takeovers_total{{result="{result}",role="service",task="0"}} {count}'
                for result, count in (("taken", 6.0), ("refused", 0.0))
            ]


def test_the_version_before_still_answers_whoever_names_it(tmp_path: Path) -> None:
    export(tmp_path / "export-1")
    export(tmp_path / "export-2", 2.0)
    with service(tmp_path, "--model", str(tmp_path / "export-1")) as running, running.client() as client:
        Versions(state_of(tmp_path) / "models" / "har").promote(tmp_path / "export-2")
        wait_until_served(running, 2)
        assert client.get(PATH).json()["versions"] == ["1", "2"]
        for version in (1, 2):
            answer = client.post(f"{PATH}/versions/{version}/infer", json=as_json(windows(1))).json()
            assert answer["model_version"] == str(version)
            np.testing.assert_allclose(
                answer["outputs"][0]["data"], logits(windows(1), float(version))[0], rtol=1e-4, atol=1e-5
            )  # fmt: skip


def test_a_version_that_does_not_match_its_hash_is_refused_and_the_old_one_stays(tmp_path: Path) -> None:
    export(tmp_path / "export-1")
    export(tmp_path / "export-2", 2.0)
    versions = Versions(state_of(tmp_path) / "models" / "har")
    versions.promote(tmp_path / "export-1")
    damaged = versions.promote(tmp_path / "export-2").folder / "model.onnx"
    whole = damaged.read_bytes()
    versions.rollback()
    damaged.write_bytes(whole[:-1] + b"?")
    with service(tmp_path) as running, running.client() as client:
        versions._point((1, 2))  # what no promotion would do
        end = time.monotonic() + SECONDS
        once = 'takeovers_total{result="refused",role="service",task="0"} 1.0'
        while once not in (text := client.get("/metrics").text):
            assert time.monotonic() < end, text
        assert client.get(f"{PATH}/ready").json()["version"] == "1"
        damaged.write_bytes(whole)
        versions._point((1,))
        export(tmp_path / "export-3", 3.0)
        assert versions.promote(tmp_path / "export-3").number == 3
        wait_until_served(running, 3)


def wait_until_served(running: Service, version: int) -> None:
    end = time.monotonic() + SECONDS
    with running.client() as client:
        while (found := client.get(f"{PATH}/ready").json())["version"] != str(version):
            assert time.monotonic() < end, found
