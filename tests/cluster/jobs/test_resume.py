"""An asynchronous run goes on after its coordinator was killed: each update counts once."""

import shutil
from pathlib import Path

import pytest

from cluster.jobs.checkpointing import progress_of
from tests.cluster.conftest import Pool
from tests.cluster.jobs.cluster import Cluster, Done

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

EPOCHS = 8
BATCHES = 20
REPLAYED = 2
RUN = (f"epochs={EPOCHS}", "validation_subjects=0", f"replay_worst_batches={REPLAYED}")


def checkpoints(run: Path) -> list[int]:
    """Their updates."""
    return sorted(
        int(path.stem.partition("-")[2]) for path in run.glob("checkpoints/update-*.json")
    )


def known(run: Path) -> int:
    """The last update that the run has noted."""
    return progress_of(run).updates


@pytest.fixture(scope="module")
def killed(clusters: Pool) -> Path:
    """The folder of a run that was killed with several checkpoints and updates since."""
    with clusters(2, 2).held(60, words=(*RUN, "checkpoint.every_updates=25")) as job:
        run = job.kill()
    assert (checkpoints(run), known(run)) == ([25, 50], 60)
    return run


@pytest.fixture
def run(killed: Path) -> Path:
    """A copy of its own."""
    number = len(list(killed.parent.glob("2099*")))
    return Path(shutil.copytree(killed, killed.parent / f"20990101T00000{number}Z-train"))


def ended_well(done: Done) -> None:
    assert done.updates == EPOCHS * (BATCHES + REPLAYED)
    assert [event["epoch"] for event in done.epochs] == list(range(1, EPOCHS + 1))
    assert done.result["final"]["accuracy"] is not None
    nothing = dict.fromkeys(done.result["final"])
    assert done.result["selected"] == {**nothing, "epoch": EPOCHS}, "nothing was held out"


def test_without_any_checkpoint_it_begins_anew_and_says_how_much_is_lost(
    two_servers: Cluster, run: Path
) -> None:
    lost = known(run)
    for path in run.glob("checkpoints/update-*"):
        path.unlink()
    done = two_servers.train(*RUN, resumed=run)
    ended_well(done)
    assert done.result["updates"]["rolled_back"] == lost > 0
    assert f"no checkpoint: {lost} updates run again" in done.errors


def test_killed_workers_and_updates_sent_twice_lose_and_double_nothing(
    two_servers: Cluster,
) -> None:
    """The last one that is killed does not come back."""
    with two_servers.held(30, 60, 90, 120, words=RUN) as job:
        for update, name in ((30, "worker:0"), (60, "worker:1"), (90, "worker:0")):
            job.let_go(update)
            two_servers.replace(name)  # at whatever it does meanwhile
            job.until_held(update + 30)
        two_servers.kill("worker:1")
        job.let_go(120)
        done = job.end(0)
    ended_well(done)
    assert sum(map(sum, done.result["confusion"])) == 120
    assert "worker:0 left" in done.log
    assert "worker:1 left" in done.log
