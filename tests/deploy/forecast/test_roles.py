"""Costs of roles, from processes that only say how far they are."""

import json
import os
import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest

from core.ground.errors import ClusterError, UsageError
from core.inventory import load
from core.inventory.templates import local_inventory
from deploy.forecast import roles
from deploy.forecast.roles import EPOCHS, measured_costs, measured_roles, processor_seconds

TRAINING = f"""
import json, sys, time
from pathlib import Path
runs = next(word[5:] for word in sys.argv if word.startswith("runs="))
run = Path(runs, "1-train")
run.mkdir(parents=True)
traffic = {{"event": "traffic", "sent_bytes": 300, "received_bytes": 500, "steps": 10}}
lines = [json.dumps({{"event": "cut", "slots": 8}}), json.dumps(traffic), "cut sho"]
(run / "history.jsonl").write_text("\\n".join(lines))
for second in range(LAST):
    done = 1 + 10 * second
    advance = {{"stage": "train", "done": done, "total": 7 * {EPOCHS}, "spread": 0.25}}
    print(json.dumps({{"pscluster_run": advance}}), flush=True)
    time.sleep(0.05)
print("the reason")
"""


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> None:
    def command(module: str, *arguments: str) -> tuple[str, ...]:
        program = "import time; time.sleep(60)"
        if module == "cluster":
            program = TRAINING.replace("LAST", "200")
        return (sys.executable, "-c", program, *arguments)

    monkeypatch.setattr(roles, "module_command", command)
    monkeypatch.setattr(roles, "answers", lambda *_: True)


@pytest.mark.usefixtures("played")
def test_a_run_is_what_passed_after_the_workers_were_warm() -> None:
    slowed: list[set[str]] = []

    def limited(processes: Mapping[str, int]) -> AbstractContextManager[None]:
        slowed.append(set(processes))
        return nullcontext()

    run = measured_roles((), (), 2, 1, limited, seconds=0.1)
    assert slowed == [{"ps:0", "worker:0", "worker:1"}], "once, and not the coordinator"
    assert (run.slots, run.updates_an_epoch, run.spread) == (8, 7, 0.25)
    assert run.workers == 2
    assert run.updates >= roles.CALLS * 2
    assert run.updates % 10 == 0
    assert 0.1 <= run.seconds < 10
    assert run.sent_bytes == pytest.approx(30 * run.updates)
    assert run.received_bytes == pytest.approx(50 * run.updates)
    assert run.coordinator_seconds > 0
    assert run.worker_seconds < run.seconds, "they sleep"


def test_a_training_that_ends_too_soon_is_no_measurement(
    played: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    del played
    monkeypatch.setattr(sys.modules[__name__], "TRAINING", TRAINING.replace("LAST", "1"))
    with pytest.raises(ClusterError, match="1 workers: the training did not come to enough upd"):
        measured_roles((), (), 1, 1)


@pytest.mark.parametrize("ready", [True, False])
def test_a_role_that_ends_is_quoted(
    played: None, monkeypatch: pytest.MonkeyPatch, ready: bool
) -> None:
    """Before it answers, and while the training waits for it."""
    del played
    monkeypatch.setattr(roles, "READY_SECONDS", 20.0)  # so long a wait is a defect
    monkeypatch.setattr(roles, "answers", lambda *_: ready)
    command = vars(roles)["module_command"]
    reason = "print('the disk is full'); raise SystemExit(3)"

    def ending(module: str, *arguments: str) -> tuple[str, ...]:
        if module == "ps_node":
            return (sys.executable, "-c", reason, *arguments)
        return tuple(command(module, *arguments))

    monkeypatch.setattr(roles, "module_command", ending)
    with pytest.raises(ClusterError, match=r"ps:0 ended with exit code 3.*: the disk is full"):
        measured_roles((), (), 1, 1, seconds=30.0)


def test_a_mode_without_roles_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "inventory.yaml"
    path.write_text(local_inventory(2, 1))
    with pytest.raises(UsageError, match=r"mode single: one machine alone has no roles.*sync"):
        measured_costs(load(path, ["jobs.train.mode=single"]), ())


def test_the_settings_of_a_training_survive_as_an_override(tmp_path: Path) -> None:
    path = tmp_path / "inventory.yaml"
    path.write_text(local_inventory(2, 1))
    train = load(path, ["jobs.train.mode=ssp", "jobs.train.ssp.bound=3"]).jobs.train
    again = f"jobs.train={json.dumps(train.model_dump(mode='json', by_alias=True))}"
    assert load(path, [again]).jobs.train == train


def test_the_processor_time_of_a_process_is_its_own() -> None:
    before = processor_seconds(os.getpid())
    begin = time.process_time()
    sum(range(10**6))
    assert processor_seconds(os.getpid()) - before >= time.process_time() - begin - 1e-3 > 0
