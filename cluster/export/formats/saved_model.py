"""`saved_model/`: the traced function with constants, for TensorFlow and what serves its format."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.export.graph import INPUT, OUTPUT, Answers, answering
from cluster.export.request import Format
from core.exported.description import Description
from core.ground.lazy import tf

if TYPE_CHECKING:
    from cluster.jobs.train_result import StoredModel

SIGNATURE = "serving_default"


class SavedModel(Format):
    """A folder of TensorFlow's SavedModel."""

    name = "savedmodel"
    quantizable = False
    packages = {}  # noqa: RUF012  the registry asks for a plain fact

    @staticmethod
    def write(model: "StoredModel", path: Path, *, quantized: bool) -> None:
        """Save the traced function."""
        del quantized
        problem = model.network.problem
        answer = answering(model)
        module = tf.Module()

        def named(windows: Any) -> dict[str, Any]:
            return {OUTPUT: answer(windows)}

        spec = tf.TensorSpec((None, *problem.input_shape), problem.input_dtype, INPUT)
        module.serve = tf.function(named, autograph=False, input_signature=[spec])
        tf.saved_model.save(module, str(path), {SIGNATURE: module.serve.get_concrete_function()})

    @staticmethod
    def answers_of(path: Path, description: Description) -> Answers:
        """Load the folder and return its serving function."""
        loaded = tf.saved_model.load(str(path))
        signature = loaded.signatures[SIGNATURE]

        def answers(windows: Any, _kept: Any = loaded) -> Any:
            return signature(**{INPUT: tf.constant(windows)})[OUTPUT]

        return answers
