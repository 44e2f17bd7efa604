"""Which arithmetic a job gets, and why."""

from typing import Any

import pytest

from cluster.jobs.job_network import arithmetic_of_job
from core.ground.errors import UsageError
from core.inventory.training import TrainJob
from tests.cluster.apps.looping import dropout_in_a_cell_and_behind_it
from tests.cluster.jobs.steps_here import built_in, of_app
from tests.tables import table


def job(**words: Any) -> TrainJob:
    return TrainJob.model_validate(words)


def test_built_in_networks_are_the_library_s() -> None:
    found = arithmetic_of_job(job(), built_in("thesis"))
    assert found.name == "library"
    assert found.why.startswith("version ")
    asked = arithmetic_of_job(job(arithmetic="tensorflow"), built_in("thesis"))
    assert (asked.name, asked.why) == ("tensorflow", "set by jobs.train.arithmetic")


@pytest.mark.parametrize(("words", "why"), table("cluster/jobs/rows", "outside of the library"))
def test_what_the_library_does_not_know_is_tensorflow_s_or_refused(
    words: dict[str, Any], why: str
) -> None:
    found = arithmetic_of_job(job(**words), built_in("thesis"))
    assert found.name == "tensorflow"
    assert why in found.why
    with pytest.raises(UsageError, match=f"jobs.train.arithmetic: .*{why}: set it to auto"):
        arithmetic_of_job(job(**words, arithmetic="library"), built_in("thesis"))


def test_a_kind_that_this_processor_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PSCLUSTER_KERNELS", "abacus")
    with pytest.raises(UsageError, match="PSCLUSTER_KERNELS: this processor has no kind 'abacus'"):
        arithmetic_of_job(job(), built_in("thesis"))


def test_a_model_of_an_app_is_tensorflow_s() -> None:
    network = of_app(dropout_in_a_cell_and_behind_it)
    assert "the app brings a model" in arithmetic_of_job(job(), network).why
