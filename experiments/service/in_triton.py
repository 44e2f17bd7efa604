"""`PYTHON in_triton.py MODEL PORT`.

Triton with its Python backend, by PyTriton, over the same ONNX file.

It runs in an interpreter that has `nvidia-pytriton` and `onnxruntime`, and none of our packages.
"""

import os
import sys
import threading

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import numpy as np
import onnxruntime  # type: ignore[import-untyped]
from pytriton.decorators import batch  # type: ignore[import-not-found]
from pytriton.model_config import (  # type: ignore[import-not-found]
    DynamicBatcher,
    ModelConfig,
    Tensor,
)
from pytriton.triton import Triton, TritonConfig  # type: ignore[import-not-found]

LARGEST_BATCH = 64
BATCH_MICROSECONDS = 2000


def main(model: str, port: int) -> None:
    """Serve until a signal."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    given = session.get_inputs()[0]

    @batch
    def infer(windows: np.ndarray) -> dict[str, np.ndarray]:
        return {"logits": session.run(None, {given.name: windows})[0]}

    config = TritonConfig(
        http_port=port, http_address="127.0.0.1", allow_grpc=False, allow_metrics=False
    )
    with Triton(config=config) as triton:
        triton.bind(
            model_name="har",
            infer_func=infer,
            inputs=[Tensor(name="windows", dtype=np.float32, shape=tuple(given.shape[1:]))],
            outputs=[Tensor(name="logits", dtype=np.float32, shape=(-1,))],
            config=ModelConfig(
                max_batch_size=LARGEST_BATCH,
                batcher=DynamicBatcher(max_queue_delay_microseconds=BATCH_MICROSECONDS),
            ),
        )
        triton.run()
        print(f"serving at {port}", flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
