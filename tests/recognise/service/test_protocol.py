"""Every path of the Open Inference Protocol v2, asked of a real service over its port."""

import json
import struct
from typing import Any

import httpx
import numpy as np
import pytest
from scipy.special import softmax

from tests.core.exported import small
from tests.recognise.service.exports import Floats, export, logits, windows
from tests.recognise.service.running import PATH, Service, as_json
from tests.tables import table

LENGTH = "Inference-Header-Content-Length"
EXPORT = export
HALVES = np.full((1, small.STEPS, small.CHANNELS), 0.5, np.float32)


def labels(given: Floats) -> list[str]:
    return [("WALKING", "SITTING")[row] for row in logits(given).argmax(1)]


def refused(answer: httpx.Response, words: str, status: int = 400) -> None:
    assert (answer.status_code, words in answer.json()["error"]) == (status, True), answer.text


def test_what_the_server_and_the_model_are(client: httpx.Client) -> None:
    assert client.get("/v2").json()["extensions"] == ["binary_tensor_data"]
    assert client.get("/v2/health/live").json() == {"live": True}
    assert client.get("/v2/health/ready").json() == {"ready": True}
    for path in (PATH, f"{PATH}/versions/1"):
        model = client.get(path).json()
        named = [model[key] for key in ("name", "versions", "platform")]
        assert named == ["har", ["1"], "onnxruntime_onnx"]
        shape = [-1, small.STEPS, small.CHANNELS]
        assert model["inputs"] == [{"name": "windows", "datatype": "FP32", "shape": shape}]
        outputs = [output["name"] for output in model["outputs"]]
        assert outputs == ["logits", "probabilities", "labels"]
        assert model["parameters"]["labels"] == ["WALKING", "SITTING"]
        assert model["parameters"]["channels"] == ["x", "y", "z"]
        assert client.get(f"{path}/ready").json()["ready"] is True


@pytest.mark.parametrize("count", [1, 3, 200])
@pytest.mark.parametrize("nested", [False, True])
def test_json_tensors_get_logits_probabilities_and_labels(
    client: httpx.Client, count: int, nested: bool
) -> None:
    given = windows(count)
    body: Any = as_json(given, id="one")
    if nested:
        body["inputs"][0]["data"] = given.tolist()
    answer = client.post(f"{PATH}/versions/1/infer", json=body).json()
    outputs = {output["name"]: output for output in answer.pop("outputs")}
    assert answer == {"id": "one", "model_name": "har", "model_version": "1"}
    assert outputs["labels"]["data"] == labels(given)
    for name, expected in (
        ("logits", logits(given)),
        ("probabilities", softmax(logits(given), axis=1)),
    ):
        assert outputs[name]["shape"] == [count, 2]
        found = np.reshape(outputs[name]["data"], (count, 2))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_binary_tensors_both_ways(client: httpx.Client) -> None:
    given = windows(4)
    wanted = as_json(
        given,
        outputs=[
            {"name": "labels", "parameters": {"binary_data": True}},
            {"name": "probabilities"},
            {"name": "logits", "parameters": {"binary_data": True}},
        ],
    )
    tensor: Any = wanted["inputs"]
    tensor[0]["parameters"] = {"binary_data_size": len(given.tobytes())}
    del tensor[0]["data"]
    head = json.dumps(wanted).encode()
    answer = client.post(
        f"{PATH}/infer", content=head + given.tobytes(), headers={LENGTH: str(len(head))}
    )
    assert answer.headers["content-type"] == "application/octet-stream"
    end = int(answer.headers[LENGTH])
    first, likely, raw = json.loads(answer.content[:end])["outputs"]
    assert len(likely["data"]) == 8
    sizes = [output["parameters"]["binary_data_size"] for output in (first, raw)]
    names = b"".join(struct.pack("<I", len(name)) + name.encode() for name in labels(given))
    rest = answer.content[end:]
    assert (sizes, len(rest)) == ([len(names), 4 * 2 * 4], sum(sizes))
    assert rest[: len(names)] == names
    found = np.frombuffer(rest[len(names) :], "<f4").reshape(4, 2)
    np.testing.assert_allclose(found, logits(given), rtol=1e-5, atol=1e-6)


def test_all_outputs_are_binary_where_the_request_says_so(client: httpx.Client) -> None:
    body = as_json(windows(1), parameters={"binary_data_output": True})
    answer = client.post(f"{PATH}/infer", json=body)
    outputs = json.loads(answer.content[: int(answer.headers[LENGTH])])["outputs"]
    assert [output["parameters"]["binary_data_size"] for output in outputs] == [8, 8, 4 + 7]


@pytest.mark.parametrize(
    ("words", "changes"),
    [*table("recognise/service/requests", "tensor"), ("data.23", {"last": 10**400})],
)
def test_a_wrong_tensor_is_answered_with_the_reason(
    client: httpx.Client, words: str, changes: dict[str, Any]
) -> None:
    body: Any = as_json(HALVES)
    if "last" in changes:
        body["inputs"][0]["data"][23] = changes["last"]
    else:
        tensor = {**body["inputs"][0], **changes}
        body["inputs"][0] = {key: value for key, value in tensor.items() if value is not None}
    refused(client.post(f"{PATH}/infer", json=body), words)


HUGE = as_json(np.full_like(HALVES, 3e38))


@pytest.mark.parametrize(
    ("words", "changes"), [*table("recognise/service/requests", "request"), ("not finite", HUGE)]
)
def test_a_wrong_request_is_answered_with_the_reason(
    client: httpx.Client, words: str, changes: dict[str, Any]
) -> None:
    refused(client.post(f"{PATH}/infer", json={**as_json(windows(1)), **changes}), words)


@pytest.mark.parametrize(("asked", "answer"), table("recognise/service/requests", "asked").items())
def test_what_is_not_there_or_not_for_others_is_said(
    client: httpx.Client, asked: str, answer: str
) -> None:
    method, path, *headers = asked.split()
    found = client.request(method, path, headers=dict(line.split("=") for line in headers))
    assert f"{found.status_code} {found.json()['error']}".startswith(answer)
    assert "access-control-allow-origin" not in found.headers


def test_the_token_is_asked_for_everything_but_the_probes(running: Service) -> None:
    right = f"Bearer {running.token}"
    for headers in (
        [],
        [("Authorization", "Bearer x")],
        [("Authorization", running.token)],
        [("Authorization", right)] * 2,
    ):
        with httpx.Client(base_url=f"http://{running.address}", headers=headers) as stranger:
            assert stranger.get("/v2/health/live").status_code == 200
            asked = [stranger.get(path) for path in ("/v2", PATH, "/metrics")]
            asked.append(stranger.post(f"{PATH}/infer", json=as_json(windows(1))))
            found = {(answer.status_code, answer.headers["www-authenticate"]) for answer in asked}
            assert found == {(401, "Bearer")}


def test_an_address_of_the_house_is_no_other_name(client: httpx.Client) -> None:
    assert client.get("/v2", headers={"Host": "192.168.1.16:8470"}).status_code == 200


def test_metrics_count_what_was_answered(running: Service, client: httpx.Client) -> None:
    before = running.metrics()
    client.post(f"{PATH}/infer", json=as_json(windows(3)))
    client.post(f"{PATH}/infer", content=b"{")
    after = running.metrics()
    more = {name: after[name] - before.get(name, 0.0) for name in after}
    assert more['requests_total{code="400"}'] == 1
    assert more['requests_total{code="200"}'] == 2  # the first look is one of them
    assert more["request_seconds_count"] == 2
    assert more["batch_windows_sum"] == 3
    assert (after["model_version"], after["waiting_windows"]) == (1, 0)
