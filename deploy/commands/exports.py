"""`fab export`: a process that knows TensorFlow writes a run for other runtimes."""

import os

from core.ground.errors import UsageError
from deploy.commands.action import run_module, takes
from deploy.commands.flags import TrustFlags, as_words, path, switch, text

_MODULE = "cluster.export"
_NEEDED = {
    "run": "the folder of a finished training, e.g. --run runs/20260101T120000Z-train",
    "to": "a format: --to onnx, litert, savedmodel or keras",
    "out": "a folder to make, e.g. --out walking",
}


class ExportFlags(TrustFlags):
    """The flags of `export`."""

    run: str | None = path("folder of the run to export")
    to: str | None = text(
        "format of the export: onnx, litert, savedmodel or keras",
        choices=("onnx", "litert", "savedmodel", "keras"),
    )
    quantize: str | None = text(
        "dynamic: weights of an ONNX or LiteRT export as int8", choices=("dynamic",)
    )
    out: str | None = path("folder to make, with the export")
    data: str | None = path(
        "recordings of the test windows, where they lie elsewhere than in the training"
    )
    json_: bool = switch("one JSON object for programs instead of text for people")
    quiet: bool = switch("no progress")


@takes(ExportFlags)
def export(flags: ExportFlags) -> None:
    """Write a trained run for other runtimes: `fab export --run RUN --to onnx --out FOLDER`."""
    flags = flags.but(run=_expanded(flags.run), out=_expanded(flags.out))
    for name, needed in _NEEDED.items():
        if not getattr(flags, name):
            raise UsageError(f"--{name}: expected {needed}")
    passed_on = (*_NEEDED, "quantize", "data", "json_", "quiet")
    run_module(_MODULE, *as_words(flags, *passed_on))


def _expanded(path: str | None) -> str:
    return os.path.expanduser(path or "")
