"""A promoted version is compared on live windows before it takes over, and harms none of them."""

import asyncio
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path

import numpy as np

from recognise.service.limits import ShadowLimits
from recognise.service.shadow import Shadow
from recognise.service.versions import Versions
from tests.service.exports import export, windows
from tests.service.running import PATH, Service, as_json, service, state_of
from tests.service.test_takeover import SECONDS, under_load, wait_until_served

Floats = np.ndarray


def first(given: Floats) -> Floats:
    """Logits (n, 2): the first sample of the first channel, and its opposite."""
    return np.stack([given[:, 0, 0], -given[:, 0, 0]], axis=1)


def shown(compute: Callable[[Floats], Floats], offers: list[Floats], **limits: float) -> tuple[Counter[str], str]:
    """What a shadow counted after these windows, each offered when it has done the one before, and its refusal."""

    async def scene() -> tuple[Counter[str], str]:
        counted: Counter[str] = Counter()
        shadow = Shadow(compute, ShadowLimits(**limits), lambda result, count: counted.update({result: count}))  # type: ignore[arg-type]
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
    counted, refusal = shown(lambda given: 3 * first(given), [windows(5), windows(7, 1)], least_agreement=1.0)
    assert (+counted, refusal) == ({"agreed": 12}, "")


def test_too_many_other_labels_are_a_reason_only_where_a_share_is_asked_for() -> None:
    counted, refusal = shown(lambda given: -first(given), [windows(5)])
    assert (+counted, refusal) == ({"differed": 5}, "")
    _, refusal = shown(lambda given: -first(given), [windows(5)], least_agreement=0.9)
    assert refusal == "in the shadow 0 of 5 windows got the served label, expected 0.9"


def test_an_answer_that_is_not_finite_is_a_reason_but_not_where_the_served_one_is_not_either() -> None:
    damaged = windows(4)
    damaged[0, 0, 0] = np.nan
    counted, refusal = shown(first, [damaged])
    assert (+counted, refusal) == ({"agreed": 3}, "")
    counted, refusal = shown(lambda given: first(given) * np.inf, [damaged])
    assert (+counted, refusal) == ({"failed": 3}, "in the shadow 3 of 3 windows had no finite answer")


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
        shadow = Shadow(waits, ShadowLimits(windows=4, batch_windows=4), lambda result, n: counted.update({result: n}))
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
    with running.client() as client:
        text = client.get("/metrics").text
    return {
        name: float(value)
        for name, value in re.findall(r'service_shadow_windows_total\{result="(\w+)".*\} (\S+)', text)
    }  # fmt: skip


def refused_while_asked(running: Service, body: object) -> None:
    """Ask for inferences, which version 1 answers, until a version is refused."""
    end = time.monotonic() + SECONDS
    once = 'takeovers_total{result="refused",role="service",task="0"} 1.0'
    with running.client() as client:
        while once not in (text := client.get("/metrics").text):
            assert time.monotonic() < end, text
            assert client.post(f"{PATH}/infer", json=body).json()["model_version"] == "1"


def test_a_version_is_compared_under_load_and_takes_over(tmp_path: Path) -> None:
    for number in (1, 2):
        export(tmp_path / f"export-{number}", float(number))
    with service(tmp_path, "--model", str(tmp_path / "export-1"), "--least-agreement", "1") as running:
        versions = Versions(state_of(tmp_path) / "models" / "har")
        with under_load(running) as load:
            load.wait_for(1)
            versions.promote(tmp_path / "export-2")
            wait_until_served(running, 2)
            found = compared(running)
            versions.rollback()  # at once: nothing is compared
            wait_until_served(running, 1)
        assert load.wrong == []
        assert found["agreed"] >= 100
        assert (found["differed"], found["failed"]) == (0, 0)
        after = compared(running)
        assert after["agreed"] == found["agreed"]


def test_a_version_with_other_labels_than_asked_for_is_refused(tmp_path: Path) -> None:
    export(tmp_path / "export-1")
    export(tmp_path / "export-2", -1.0)
    body = as_json(windows(8))
    words = ("--model", str(tmp_path / "export-1"), "--least-agreement", "0.9")
    with service(tmp_path, *words) as running, running.client() as client:
        client.post(f"{PATH}/infer", json=body)
        Versions(state_of(tmp_path) / "models" / "har").promote(tmp_path / "export-2")
        refused_while_asked(running, body)
        found = compared(running)
        assert (found["agreed"], found["failed"]) == (0, 0)
        assert found["differed"] >= 100
        assert client.get(f"{PATH}/ready").json()["version"] == "1"


def test_a_version_without_finite_answers_on_live_windows_is_refused(tmp_path: Path) -> None:
    export(tmp_path / "export-1")
    export(tmp_path / "export-2", 1e37)  # finite for the windows of zeros that warm it up
    body = as_json(10_000 * windows(8))
    with service(tmp_path, "--model", str(tmp_path / "export-1")) as running, running.client() as client:
        client.post(f"{PATH}/infer", json=body)
        Versions(state_of(tmp_path) / "models" / "har").promote(tmp_path / "export-2")
        refused_while_asked(running, body)
        assert compared(running)["failed"] > 0
        assert client.get(f"{PATH}/ready").json()["version"] == "1"
