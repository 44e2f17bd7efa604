"""`model.keras`: Keras's own layers, which `keras.models.load_model` opens without pscluster."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.export.formats.format import ExportRefused, Format
from cluster.export.graph import INPUT, OUTPUT, Answers
from core.exported.description import Description
from core.ground.errors import UsageError, reason_of
from core.ground.lazy import tf
from core.models.network import BuiltIn

if TYPE_CHECKING:
    from cluster.jobs.train_result import StoredModel


REMEDY = "give its classes get_config() and @keras.saving.register_keras_serializable()"


class KerasFile(Format):
    """A file of Keras."""

    name = "keras"
    quantizable = False
    packages = {}  # noqa: RUF012  the registry asks for a plain fact

    @staticmethod
    def write(model: "StoredModel", path: Path, *, quantized: bool) -> None:
        """Write the Keras model."""
        del quantized
        filled_model = keras_model(model)
        try:
            filled_model.save(path)
        except OSError:
            raise
        except (
            Exception
        ) as problem:  # whatever a layer of an app raises where it says how it is made
            raise ExportRefused(
                f"--to keras: the app's model cannot be written ({reason_of(problem):.200}):"
                f" {REMEDY}"
            ) from None

    @staticmethod
    def opened(path: Path, description: Description) -> Answers:
        """Load the file as a Keras model and trace it."""
        import keras

        try:
            loaded = keras.models.load_model(path, compile=False)
        except (
            Exception
        ) as problem:  # whatever a class raises that Keras cannot find, or cannot make again
            raise ExportRefused(
                f"--to keras: Keras cannot open what was written ({reason_of(problem):.200}):"
                f" {REMEDY}"
            ) from None
        traced = tf.function(lambda windows: loaded(windows, training=False), autograph=False)
        return lambda windows: traced(tf.constant(windows))


def keras_model(model: "StoredModel") -> Any:
    """The model as a `keras.Model` of raw windows. Raises UsageError for an app without Keras."""
    import keras

    from cluster.apps.keras_network import KerasNetwork
    from cluster.export.keras_writer import KerasWriter

    network = model.network
    if isinstance(network, BuiltIn):
        return KerasWriter(model).model()
    if not isinstance(network, KerasNetwork):
        raise UsageError("--to keras: the app's model is no Keras model: use --to savedmodel")
    problem = network.problem
    standardization = model.standardization
    inputs = keras.Input(problem.input_shape, dtype=problem.input_dtype, name=INPUT)
    windows = inputs
    if len(standardization.mean):
        windows = keras.ops.divide(
            keras.ops.subtract(windows, standardization.mean), standardization.deviation
        )
    answer = network.filled(model.vector)(windows)
    return keras.Model(inputs, keras.layers.Identity(name=OUTPUT)(answer), name="pscluster")
