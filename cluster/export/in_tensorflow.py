"""`python -m cluster.export.in_tensorflow EXPORT RUN THREADS` answers with the traced network."""

import sys
from collections.abc import Callable
from pathlib import Path

from core.exported import read
from core.exported.timed.serving import Floats, serve


def main(folder: Path, run: Path, threads: int) -> None:
    """Answer until standard input ends.

    TensorFlow is imported when the model is opened, so that memory counts it.
    """

    def opened() -> Callable[[Floats], Floats]:
        from cluster.export.graph import traced
        from cluster.jobs.train_result import load

        import tensorflow as tf  # isort: skip

        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(1)
        function = traced(load(run / "model"), batch=1)

        def answers(windows: Floats) -> Floats:
            logits: Floats = function(tf.constant(windows)).numpy()
            return logits

        return answers

    serve(read(folder), opened, {"runtime": f"tensorflow {_version()}"})


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    for name in ("tensorflow-cpu", "tensorflow"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return "of an unknown version"


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
