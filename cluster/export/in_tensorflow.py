"""`python -m cluster.export.in_tensorflow EXPORT RUN THREADS` answers with the traced network.

It does so in a cage: a network of an app is code, and another person may have written it.
"""

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from core.exported import read
from core.exported.timed.serving import Floats, serve

IN_CAGE = "--in-cage"


def become_caged(folder: Path, run: Path, threads: str) -> None:
    """Become the process that answers. Its caller removes its temporary folder.

    Raises UsageError for code of others.
    """
    from cluster.apps.copy import own_app
    from cluster.export.caged import environment_in_cage, rights_in_cage
    from core.cage.__main__ import words

    app = own_app(run)
    temporary = Path(tempfile.mkdtemp())
    environment = environment_in_cage(temporary / "tensorflow", app)
    rights = rights_in_cage(app, (folder, run), (temporary,))
    answering = (sys.executable, "-m", "cluster.export.in_tensorflow", IN_CAGE)
    caged = words(rights, (*answering, str(folder), str(run), threads), sockets=False)
    os.execve(caged[0], caged, environment)


def main(folder: Path, run: Path, threads: int) -> None:
    """Answer until standard input ends.

    TensorFlow is imported when the model is opened, so that memory counts it.
    """
    facts: dict[str, str] = {}

    def opened() -> Callable[[Floats], Floats]:
        from cluster.export.graph import traced
        from cluster.jobs.train_result import load

        import tensorflow as tf  # isort: skip

        facts["runtime"] = f"tensorflow {tf.__version__}"
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(1)
        function = traced(load(run / "model"), batch=1)

        def answers(windows: Floats) -> Floats:
            logits: Floats = function(tf.constant(windows)).numpy()
            return logits

        return answers

    serve(read(folder), opened, facts)


if __name__ == "__main__":
    if sys.argv[1] == IN_CAGE:
        main(Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
    else:
        become_caged(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve(), sys.argv[3])
