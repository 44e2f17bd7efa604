"""A promoted version is compared on live windows before it takes over, and harms none of them."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path

import numpy as np
import pytest

from recognise.service.limits import ShadowLimits
from recognise.service.shadow import Shadow
from tests.deploy.playing import eventually
from tests.recognise.service.exports import Floats, export, logits, windows
from tests.recognise.service.moving import Asker, under_way, wait_for_answers
from tests.recognise.service.running import (
    PATH,
    Service,
    as_json,
    served,
    wait_until_served,
)

SECONDS = 30.0


def first(given: Floats) -> Floats:
    """Logits (n, 2): the first sample of the first channel, and its opposite."""
    return np.stack([given[:, 0, 0], -given[:, 0, 0]], axis=1)


def shown(
    compute: Callable[[Floats], Floats], offers: list[Floats], **limits: float
) -> tuple[Counter[str], str]:
    """Return what a shadow counted after these windows, offered in turn, and its refusal."""

    async def scene() -> tuple[Counter[str], str]:
        counted: Counter[str] = Counter()
        most = ShadowLimits(**limits)  # type: ignore[arg-type]
        shadow = Shadow(compute, most, lambda result, count: counted.update({result: count}))
        try:
            for one in offers:
                shadow.offer(one, first(one))
                while shadow._running is not None:
                    await asyncio.sleep(0.001)
            return counted, shadow.refusal()
        finally:
            shadow.close()

    return run(scene())


def run(scene: Coroutine[object, object, tuple[Counter[str], str]]) -> tuple[Counter[str], str]:
    async def in_time() -> tuple[Counter[str], str]:
        async with asyncio.timeout(SECONDS):
            return await scene

    return asyncio.run(in_time())


def test_equal_labels_agree_whatever_their_logits() -> None:
    counted, refusal = shown(
        lambda given: 3 * first(given), [windows(5), windows(7, 1)], least_agreement=1.0
    )
    assert (+counted, refusal) == ({"agreed": 12}, "")


def test_too_many_other_labels_are_a_reason_only_where_a_share_is_asked_for() -> None:
    counted, refusal = shown(lambda given: -first(given), [windows(5)])
    assert (+counted, refusal) == ({"differed": 5}, "")
    _, refusal = shown(lambda given: -first(given), [windows(5)], least_agreement=0.9)
    assert refusal == "in the shadow 0 of 5 windows got the served label, expected 0.9"


def test_an_answer_that_is_not_finite_is_a_reason_but_not_where_the_served_one_is_not_either() -> (
    None
):
    damaged = windows(4)
    damaged[0, 0, 0] = np.nan
    counted, refusal = shown(first, [damaged])
    assert (+counted, refusal) == ({"agreed": 3}, "")
    counted, refusal = shown(lambda given: first(given) * np.inf, [damaged])
    assert (+counted, refusal) == (
        {"failed": 3},
        "in the shadow 3 of 3 windows had no finite answer",
    )


def test_a_runtime_that_raises_or_hangs_is_a_reason() -> None:
    def raises(given: Floats) -> Floats:
        raise RuntimeError("no memory left")

    assert shown(raises, [windows(1)])[1] == "in the shadow it failed: RuntimeError: no memory left"
    ends = threading.Event()

    def hangs(given: Floats) -> Floats:
        ends.wait(SECONDS)
        return first(given)

    try:
        refusal = shown(hangs, [windows(2)], compute_seconds=0.05)[1]
    finally:
        ends.set()
    assert refusal == "in the shadow it failed: 2 windows had no answer within 0.05 s"


def test_what_comes_while_it_computes_is_left_and_a_large_batch_is_cut() -> None:
    ends = threading.Event()

    def waits(given: Floats) -> Floats:
        ends.wait(SECONDS)
        return first(given)

    async def scene() -> tuple[Counter[str], str]:
        counted: Counter[str] = Counter()
        shadow = Shadow(
            waits,
            ShadowLimits(windows=4, batch_windows=4),
            lambda result, n: counted.update({result: n}),
        )
        shadow.offer(windows(6), first(windows(6)))
        shadow.offer(windows(3), first(windows(3)))
        assert counted == {"left": 5}
        ends.set()
        assert await shadow.ended(SECONDS)
        shadow.offer(windows(3), first(windows(3)))  # enough were compared
        shadow.close()
        return counted, ""

    counted, _ = run(scene())
    assert +counted == {"left": 5, "agreed": 4}


def compared(running: Service) -> dict[str, float]:
    """Windows in the shadow by result, of `/metrics`."""
    figures = running.metrics()
    results = ("agreed", "differed", "failed")
    return {result: figures[f'shadow_windows_total{{result="{result}"}}'] for result in results}


def test_a_version_is_compared_under_load_and_takes_over(tmp_path: Path) -> None:
    export(tmp_path / "export-2", 2.0)
    given = windows(3)
    wanted = {1: logits(given), 2: logits(given, 2.0)}
    with served(tmp_path, "--least-agreement", "1") as running:
        askers = [Asker(lambda: [running], given, wanted) for _ in range(4)]
        with under_way(*askers):
            wait_for_answers(askers, 1)
            running.versions.promote(tmp_path / "export-2")
            wait_until_served(running, 2)
            found = compared(running)
            running.versions.rollback()  # at once: nothing is compared
            wait_until_served(running, 1)
        assert [asker.wrong for asker in askers] == [[]] * 4
        assert found == {"agreed": pytest.approx(found["agreed"]), "differed": 0, "failed": 0}
        assert found["agreed"] >= 100
        assert compared(running) == found


@pytest.mark.parametrize(
    ("factor", "given", "result", "least"),
    [
        (-1.0, windows(8), "differed", 100),
        # Finite for the windows of zeros that warm it up.
        (1e37, 10_000 * windows(8), "failed", 1),
    ],
    ids=["other labels than asked for", "no finite answers on live windows"],
)
def test_a_version_that_fails_its_comparison_is_refused(
    tmp_path: Path, factor: float, given: Floats, result: str, least: int
) -> None:
    export(tmp_path / "export-2", factor)
    with served(tmp_path, "--least-agreement", "0.9") as running, running.client() as client:

        def is_refused() -> bool:
            """Ask for inferences, which version 1 answers, until a version is refused."""
            answer = client.post(f"{PATH}/infer", json=as_json(given)).json()
            assert answer["model_version"] == "1"
            return running.metrics()['takeovers_total{result="refused"}'] == 1

        assert not is_refused()
        running.versions.promote(tmp_path / "export-2")
        eventually(is_refused, "the version to be refused")
        found = compared(running)
        assert found.pop(result) >= least
        assert found["agreed"] == 0
        assert running.served == 1
