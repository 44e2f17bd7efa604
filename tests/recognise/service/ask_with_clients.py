"""Ask every call of the protocol through tritonclient and KServe's client.

Prints one JSON object with what each call answered. Arguments: HOST:PORT, the token, the model's
version.
"""

import asyncio
import json
import sys
from typing import Any

import numpy as np
from kserve import (  # type: ignore[import-not-found]
    InferenceRESTClient,
    InferInput,
    InferRequest,
    RESTConfig,
)
from tritonclient import http  # type: ignore[import-not-found]
from tritonclient.utils import InferenceServerException  # type: ignore[import-not-found]

MODEL = "har"
WINDOWS = np.random.default_rng(0).normal(size=(5, 8, 3)).astype(np.float32)


def through_triton(address: str, token: str, version: str) -> dict[str, Any]:
    """What tritonclient's HTTP client gets."""
    headers = {"Authorization": f"Bearer {token}"}
    found: dict[str, Any] = {"tensors": [], "heads": []}
    with http.InferenceServerClient(address) as client:
        found["live"] = client.is_server_live()
        found["ready"] = client.is_server_ready()
        found["model_ready"] = client.is_model_ready(MODEL, headers=headers)
        found["version_ready"] = client.is_model_ready(MODEL, version, headers=headers)
        found["other_ready"] = client.is_model_ready("other", headers=headers)
        found["server"] = client.get_server_metadata(headers=headers)["name"]
        found["model"] = client.get_model_metadata(MODEL, version, headers=headers)["name"]
        for binary in (False, True):
            given = http.InferInput("windows", WINDOWS.shape, "FP32")
            given.set_data_from_numpy(WINDOWS, binary_data=binary)
            for wanted_binary in (False, True):
                wanted = [
                    http.InferRequestedOutput(name, binary_data=wanted_binary)
                    for name in ("labels", "logits", "probabilities")
                ]
                answer = client.infer(
                    MODEL,
                    [given],
                    version,
                    outputs=wanted,
                    request_id="one",
                    headers=headers,
                    timeout=5_000_000,
                )
                head = answer.get_response()
                found["tensors"].append(_tensors(answer, head["outputs"]))
                del head["outputs"]
                found["heads"].append(head)
        try:
            client.infer(MODEL, [given], headers={})
        except InferenceServerException as problem:
            found["refused"] = problem.message()
    return found


async def through_kserve(address: str, token: str) -> dict[str, Any]:
    """What KServe's REST client gets."""
    headers = {"Authorization": f"Bearer {token}"}
    base = f"http://{address}"
    client = InferenceRESTClient(RESTConfig(protocol="v2", timeout=30))
    found: dict[str, Any] = {"tensors": []}
    try:
        found["live"] = await client.is_server_live(base, headers=headers)
        found["ready"] = await client.is_server_ready(base, headers=headers)
        found["model_ready"] = await client.is_model_ready(base, MODEL, headers=headers)
        for binary in (False, True):
            given = InferInput("windows", list(WINDOWS.shape), "FP32")
            given.set_data_from_numpy(WINDOWS, binary_data=binary)
            for parameters in ({}, {"binary_data_output": True}):
                request = InferRequest(
                    MODEL, [given], request_id="two", parameters=dict(parameters)
                )
                answer = await client.infer(base, request, model_name=MODEL, headers=dict(headers))
                found["tensors"].append(
                    {output.name: _plain(output.as_numpy()) for output in answer.outputs}
                )
        try:
            await client.infer(base, {"inputs": []}, model_name=MODEL, headers=dict(headers))
        except Exception as problem:
            found["refused"] = str(problem)
    finally:
        await client.close()
    return found


def _tensors(answer: Any, outputs: list[dict[str, Any]]) -> dict[str, Any]:
    return {output["name"]: _plain(answer.as_numpy(output["name"])) for output in outputs}


def _plain(values: Any) -> list[Any]:
    plain: list[Any] = values.tolist()
    return [value.decode() if isinstance(value, bytes) else value for value in plain]


if __name__ == "__main__":
    _, where, key, number = sys.argv
    answers = {
        "triton": through_triton(where, key, number),
        "kserve": asyncio.run(through_kserve(where, key)),
    }
    sys.stdout.write(json.dumps(answers))
