"""Every path of the Open Inference Protocol v2, asked of a real service over its port."""

import json
import re
import struct
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest

from tests.exported import small
from tests.service.exports import export, logits, windows
from tests.service.running import PATH, Service, as_json, service

LENGTH = "Inference-Header-Content-Length"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("service")
    export(folder / "export")
    with service(folder, "--model", str(folder / "export")) as made:
        yield made


@pytest.fixture
def client(running: Service) -> Iterator[httpx.Client]:
    with running.client() as made:
        yield made


def softmax(given: np.ndarray) -> np.ndarray:
    raised: np.ndarray = np.exp(given - given.max(1, keepdims=True))
    likely: np.ndarray = raised / raised.sum(1, keepdims=True)
    return likely


def test_what_the_server_and_the_model_are(client: httpx.Client) -> None:
    assert client.get("/v2").json()["extensions"] == ["binary_tensor_data"]
    assert client.get("/v2/health/live").json() == {"live": True}
    assert client.get("/v2/health/ready").json() == {"ready": True}
    for path in (PATH, f"{PATH}/versions/1"):
        model = client.get(path).json()
        assert (model["name"], model["versions"], model["platform"]) == ("har", ["1"], "onnxruntime_onnx")
        assert model["inputs"] == [{"name": "windows", "datatype": "FP32", "shape": [-1, small.STEPS, small.CHANNELS]}]
        assert [output["name"] for output in model["outputs"]] == ["logits", "probabilities", "labels"]
        assert model["parameters"]["labels"] == ["WALKING", "SITTING"]
        assert client.get(f"{path}/ready").json()["ready"] is True


@pytest.mark.parametrize("count", [1, 3, 200])
@pytest.mark.parametrize("nested", [False, True])
def test_json_tensors_get_logits_probabilities_and_labels(client: httpx.Client, count: int, nested: bool) -> None:
    given = windows(count)
    body: Any = as_json(given, id="one")
    if nested:
        body["inputs"][0]["data"] = given.tolist()
    answer = client.post(f"{PATH}/versions/1/infer", json=body).json()
    assert (answer["id"], answer["model_name"], answer["model_version"]) == ("one", "har", "1")
    by_name = {output["name"]: output for output in answer["outputs"]}
    expected = logits(given)
    assert by_name["logits"]["shape"] == [count, 2]
    np.testing.assert_allclose(np.reshape(by_name["logits"]["data"], (count, 2)), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        np.reshape(by_name["probabilities"]["data"], (count, 2)), softmax(expected), rtol=1e-4, atol=1e-6
    )  # fmt: skip
    assert by_name["labels"]["data"] == [("WALKING", "SITTING")[row] for row in expected.argmax(1)]


def test_binary_tensors_both_ways(client: httpx.Client) -> None:
    given = windows(4)
    tensor = {"name": "windows", "shape": list(given.shape), "datatype": "FP32"}
    head = json.dumps({
        "inputs": [{**tensor, "parameters": {"binary_data_size": given.nbytes}}],
        "outputs": [
            {"name": "labels", "parameters": {"binary_data": True}},
            {"name": "probabilities"},
            {"name": "logits", "parameters": {"binary_data": True}},
        ],
    }).encode()  # fmt: skip
    answer = client.post(f"{PATH}/infer", content=head + given.tobytes(), headers={LENGTH: str(len(head))})
    assert answer.headers["content-type"] == "application/octet-stream"
    end = int(answer.headers[LENGTH])
    labels, likely, raw = json.loads(answer.content[:end])["outputs"]
    rest = answer.content[end:]
    assert len(likely["data"]) == 8
    size = labels["parameters"]["binary_data_size"]
    assert raw["parameters"]["binary_data_size"] == 4 * 2 * 4 == len(rest) - size
    np.testing.assert_allclose(np.frombuffer(rest[size:], "<f4").reshape(4, 2), logits(given), rtol=1e-5, atol=1e-6)
    names, at = [], 0
    while at < size:
        (length,) = struct.unpack_from("<I", rest, at)
        names.append(rest[at + 4 : at + 4 + length].decode())
        at += 4 + length
    assert names == [("WALKING", "SITTING")[row] for row in logits(given).argmax(1)]


def test_all_outputs_are_binary_where_the_request_says_so(client: httpx.Client) -> None:
    body = as_json(windows(1), parameters={"binary_data_output": True})
    answer = client.post(f"{PATH}/infer", json=body)
    outputs = json.loads(answer.content[: int(answer.headers[LENGTH])])["outputs"]
    assert [output["parameters"]["binary_data_size"] for output in outputs] == [8, 8, 4 + 7]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"name": "other"}, "expected the input windows"),
    ({"datatype": "FP64"}, "expected the datatype FP32"),
    ({"shape": [1, 8, 2]}, r"expected the shape \[n, 8, 3\]"),
    ({"shape": [24]}, r"expected the shape \[n, 8, 3\]"),
    ({"shape": [0, 8, 3], "data": []}, "expected 1 to 512 windows"),
    ({"shape": [2**31, 8, 3]}, "expected 1 to 512 windows"),
    ({"shape": [10**30, 8, 3]}, "inputs.0.shape.0"),
    ({"shape": [-1, 8, 3]}, "inputs.0.shape.0"),
    ({"shape": [2, 8, 3]}, "has 48 numbers, got 24"),
    ({"data": [0.5] * 23 + ["1"]}, "data.23"),
    ({"data": [0.5] * 23 + [True]}, "data.23"),
    ({"data": [0.5] * 23 + [None]}, "data.23"),
    ({"data": [0.5] * 23 + [10**400]}, "data.23"),
    ({"data": [0.5] * 23 + [1e300]}, "expected finite numbers"),
    ({"data": [[[0.5] * 3] * 7]}, "nested as the shape"),
    ({"data": [[[0.5] * 3] * 7 + [[0.5] * 2]]}, "nested as the shape"),
    ({"data": None}, "expected either data or parameters.binary_data_size"),
    ({"parameters": {"binary_data_size": 96}}, "expected either data or"),
    ({"data": None, "parameters": {"binary_data_size": 96}}, "has 96 bytes, .* 0 came"),
]


@pytest.mark.parametrize(("changes", "words"), WRONG)
def test_a_wrong_tensor_is_answered_with_the_reason(client: httpx.Client, changes: Any, words: str) -> None:
    body: Any = as_json(np.full((1, small.STEPS, small.CHANNELS), 0.5, np.float32))
    body["inputs"][0].update(changes)
    body["inputs"][0] = {key: value for key, value in body["inputs"][0].items() if value is not None}
    answer = client.post(f"{PATH}/infer", json=body)
    assert answer.status_code == 400, answer.text
    assert re.search(words, answer.json()["error"]), answer.text


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"inputs": []}, "inputs"),
        ({"outputs": [{"name": "softmax"}]}, "expected logits, probabilities, labels"),
        ({"outputs": [{"name": "logits"}, {"name": "logits"}]}, "twice"),
        ({"outputs": [{"name": "logits", "parameters": {"classification": 2}}]}, "no classification"),
        ({"outputs": [{"name": "logits", "parameters": {"binary_data": "yes"}}]}, "expected true or false"),
        ({"parameters": {"sequence_id": 7}}, "keeps no state"),
        ({"parameters": {"timeout": -1}}, "parameters.timeout"),
        ({"id": 7}, "id"),
    ],
)
def test_a_wrong_request_is_answered_with_the_reason(client: httpx.Client, changes: Any, words: str) -> None:
    answer = client.post(f"{PATH}/infer", json={**as_json(windows(1)), **changes})
    assert (answer.status_code, words in answer.json()["error"]) == (400, True), answer.text


def test_an_answer_that_is_not_finite_is_none(client: httpx.Client) -> None:
    huge = np.full((1, small.STEPS, small.CHANNELS), 3e38, np.float32)
    answer = client.post(f"{PATH}/infer", json=as_json(huge))
    assert (answer.status_code, "not finite" in answer.json()["error"]) == (400, True)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/other", 404),
        ("GET", "/v2/models/other", 404),
        ("GET", f"{PATH}/versions/9", 404),
        ("POST", f"{PATH}/versions/9/infer", 404),
        ("GET", f"{PATH}/infer", 405),
        ("DELETE", PATH, 405),
    ],
)
def test_other_paths_and_methods_say_what_there_is(client: httpx.Client, method: str, path: str, status: int) -> None:
    answer = client.request(method, path)
    assert (answer.status_code, answer.json()["error"][:8]) == (status, "expected")


def test_the_token_is_asked_for_everything_but_the_probes(running: Service) -> None:
    with httpx.Client(base_url=f"http://{running.address}") as stranger:
        assert stranger.get("/v2/health/live").status_code == 200
        for headers in ({}, {"Authorization": "Bearer x"}, {"Authorization": running.token}):
            for path in ("/v2", PATH, "/metrics"):
                answer = stranger.get(path, headers=headers)
                assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
            assert stranger.post(f"{PATH}/infer", headers=headers, json=as_json(windows(1))).status_code == 401
        twice = [("Authorization", f"Bearer {running.token}")] * 2
        assert stranger.get("/v2", headers=twice).status_code == 401


def test_neither_another_name_nor_a_page_of_another_site_gets_an_answer(client: httpx.Client) -> None:
    assert client.get("/v2", headers={"Host": "evil.example"}).status_code == 421
    assert client.get("/v2", headers={"Host": "192.168.1.16:8470"}).status_code == 200
    for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        answer = client.post(f"{PATH}/infer", json=as_json(windows(1)), headers=headers)
        assert answer.status_code == 403
        assert "access-control-allow-origin" not in answer.headers
    preflight = client.options(f"{PATH}/infer", headers={"Origin": "http://evil.example"})
    assert preflight.status_code == 403


def test_metrics_count_what_was_answered(client: httpx.Client) -> None:
    def counted() -> dict[str, float]:
        lines = [line.rsplit(" ", 1) for line in client.get("/metrics").text.splitlines() if line[0] != "#"]
        return {name: float(value) for name, value in lines}

    before = counted()
    client.post(f"{PATH}/infer", json=as_json(windows(3)))
    client.post(f"{PATH}/infer", content=b"{")
    after = counted()
    at = 'role="service",task="0"'

    def more(name: str) -> float:
        return after[name] - before.get(name, 0.0)

    assert more(f'pscluster_service_requests_total{{code="400",{at}}}') == 1
    assert more(f'pscluster_service_requests_total{{code="200",{at}}}') == 2  # the first look is one of them
    assert more(f"pscluster_service_request_seconds_count{{{at}}}") == 2
    assert more(f"pscluster_service_batch_windows_sum{{{at}}}") == 3
    assert after[f"pscluster_service_model_version{{{at}}}"] == 1
    assert after[f"pscluster_service_waiting_windows{{{at}}}"] == 0
