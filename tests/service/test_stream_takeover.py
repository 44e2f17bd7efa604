"""A promotion and a rollback under live sessions: none is dropped, and each label names the version that gave it."""

import hashlib
import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from cluster.exported.description import read, write
from recognise.service.versions import Versions
from tests.recognise.exports import export
from tests.recognise.readings import walk
from tests.service.running import Service, service, state_of
from tests.service.streaming import event, message, session
from tests.service.test_takeover import wait_until_served

SESSIONS = 8
READINGS, HOP = 40_000, 20


def swapped(folder: Path) -> Path:
    """An export that calls moving still: the other bias and kernel sign."""
    export(folder)
    described = read(folder)
    model = onnx.load(folder / "model.onnx")
    for one in model.graph.initializer:
        if one.name in ("kernel", "bias"):
            one.CopyFrom(numpy_helper.from_array(-numpy_helper.to_array(one), one.name))
    content = model.SerializeToString()
    (folder / "model.onnx").write_bytes(content)
    write(folder, replace(described, sha256=hashlib.sha256(content).hexdigest(), bytes=len(content)))
    return folder


class Walker:
    """One session that walks until it is to stop; version 1 says MOVING, version 2 says STILL."""

    def __init__(self, running: Service) -> None:
        self.running = running
        self.stop = threading.Event()
        self.seen: list[dict[str, Any]] = []
        self.wrong: list[object] = []

    def walk(self) -> None:
        given = walk(READINGS)
        try:
            with session(self.running, hop=HOP, votes=1, of=1) as (connection, _):
                version = 1
                for start in range(0, READINGS, HOP):
                    if self.stop.is_set():
                        return
                    connection.send(message(given.rows(slice(start, start + HOP))))
                    if start < 128:
                        continue
                    while (found := event(connection))["event"] != "label":
                        if found["event"] == "version":
                            version = found["version"]
                        elif found["event"] != "changed":
                            self.wrong.append(found)
                    self.seen.append(found)
                    if found["version"] != version or found["label"] != ("MOVING", "STILL")[version - 1]:
                        self.wrong.append((version, found))
                    self.stop.wait(0.05)
                self.wrong.append("the readings ended first")
        except Exception as problem:
            self.wrong.append(problem)


def test_a_promotion_and_a_rollback_drop_no_session(tmp_path: Path) -> None:
    first = export(tmp_path / "export-1")
    second = swapped(tmp_path / "export-2")
    with service(tmp_path, "--model", str(first)) as running:
        versions = Versions(state_of(tmp_path) / "models" / "har")
        walkers = [Walker(running) for _ in range(SESSIONS)]
        threads = [threading.Thread(target=walker.walk) for walker in walkers]
        for thread in threads:
            thread.start()
        try:
            for version, change in (1, "nothing"), (2, "promote"), (1, "rollback"):
                if change == "promote":
                    versions.promote(second)
                elif change == "rollback":
                    versions.rollback()
                wait_until_served(running, version)
                for walker in walkers:
                    _wait_for(walker, version)
        finally:
            for walker in walkers:
                walker.stop.set()
            for thread in threads:
                thread.join()
        assert [walker.wrong for walker in walkers] == [[]] * SESSIONS
        for walker in walkers:
            order = [label["version"] for label in walker.seen]
            assert np.count_nonzero(np.diff(order)) == 2, json.dumps(order)


def _wait_for(walker: Walker, version: int) -> None:
    """Until this version gave some more labels of this session."""
    before = len(walker.seen)
    for _ in range(600):
        if walker.wrong or [one["version"] for one in walker.seen[before:]].count(version) >= 3:
            return
        walker.stop.wait(0.05)
    pytest.fail(f"version {version} gave no label: {walker.seen[-3:]}")
