"""What every format of an export is."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from cluster.export.graph import Answers
from core.exported.description import Description
from core.ground.errors import ClusterError
from core.ground.registry import Registry

if TYPE_CHECKING:
    from cluster.jobs.train_result import StoredModel


class ExportRefused(ClusterError):
    """A model cannot become this format, or answers otherwise than TensorFlow."""


class Format(ABC):
    """Writes a model as one file or folder, and opens it for the comparison with TensorFlow."""

    name: ClassVar[str]
    quantizable: ClassVar[bool]
    """Whether `--quantize dynamic` has a meaning."""
    packages: ClassVar[dict[str, str]]
    """Optional packages by the module that is imported: what pip calls them."""

    @staticmethod
    @abstractmethod
    def write(model: "StoredModel", path: Path, *, quantized: bool) -> None:
        """Write the model at `path`. Raises ExportRefused."""

    @staticmethod
    @abstractmethod
    def opened(path: Path, description: Description) -> Answers:
        """Open what was written at `path`, as a function of raw windows, with one thread."""


FORMATS: Registry[Format] = Registry(
    "format",
    "cluster.export.formats",
    Format,  # type: ignore[type-abstract]
)


def refuse_halves(function: Any, to: str) -> None:
    """Raise ExportRefused for a function that computes in bfloat16 or float16.

    A `mixed_` policy does so. LiteRT has no such matrix product, and tf2onnx writes constants of
    both kinds into one operation.
    """
    for operation in function.graph.get_operations():
        for tensor in operation.outputs:
            if tensor.dtype.name in ("bfloat16", "float16"):
                raise ExportRefused(
                    f"--to {to}: the model computes in {tensor.dtype.name}, which only TensorFlow"
                    " and Keras have: use --to savedmodel or keras, or train without the mixed"
                    " policy"
                )
