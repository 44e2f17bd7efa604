"""One export: written beside its place, compared with TensorFlow, then put there whole.

The comparison goes over the whole test set.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np

from cluster.export.check import Progress, compare, judged, timed
from cluster.export.examples import HeldOutExamples, digest
from cluster.export.graph import INPUT, OUTPUT, traced
from cluster.export.known_sets import LICENCES
from cluster.export.place import whole
from cluster.export.request import ExportRequest, checked
from cluster.export.trained_run import Trained
from cluster.jobs.train_result import StoredModel
from core import __version__
from core.data.dataset import CLASSIFICATION
from core.data.signals import UNKNOWN
from core.exported import description as described
from core.exported.description import measured
from core.ground.errors import UsageError
from core.ground.lazy import tf
from core.models.network import BuiltIn

LONGEST_TEXT = 400


def export(
    request: ExportRequest,
    trained: Trained,
    model: StoredModel,
    examples: HeldOutExamples,
    progress: Progress,
) -> described.Description:
    """Write the export. Raises ClusterError; then nothing is left of it."""
    kind = checked(request)
    labels = examples.classes()
    if request.quantized and labels is None:
        raise UsageError(
            "--quantize: is judged by right labels, and the task of this run is"
            f" {examples.dataset.task}: leave it out"
        )
    _refuse_positions(request, examples)
    draft = _draft(request, trained, model, examples)
    with whole(request.out) as folder:
        path = folder / draft.file
        kind.write(model, path, quantized=request.quantized)
        answers = kind.opened(path, draft)
        expected = traced(model)
        compared = compare(
            lambda windows: expected(tf.constant(windows)),
            answers,
            examples.inputs(),
            labels,
            progress,
        )
        sha256, size = measured(path)
        check = judged(
            compared, draft.check.source, quantized=request.quantized, labelled=labels is not None
        )
        timing = timed(answers, examples.inputs())
        description = replace(draft, sha256=sha256, bytes=size, check=check, timing=timing)
        described.write_description(folder, description)
        described.read_description(folder)
    return description


def _refuse_positions(request: ExportRequest, examples: HeldOutExamples) -> None:
    """`export.json`, and what opens an export by it, knows one answer an example."""
    shape = examples.dataset.targets.shape
    if examples.dataset.task == CLASSIFICATION and shape and request.to in ("onnx", "litert"):
        raise UsageError(
            f"--to {request.to}: the model names a class at each of {' x '.join(map(str, shape))}"
            " positions, which its readers do not know: use --to savedmodel or keras"
        )


def _draft(
    request: ExportRequest, trained: Trained, model: StoredModel, examples: HeldOutExamples
) -> described.Description:
    """The description with what is known before anything is written."""
    network = model.network
    dataset = examples.dataset
    problem = network.problem
    windows = dataset.holds_windows
    if windows:
        signals = dataset.signals
    else:
        signals = UNKNOWN
    if isinstance(network, BuiltIn):
        of_model = described.Architecture(network.name, network.config.model_dump(mode="json"))
    else:
        of_model = described.Architecture("app", {"name": str(network.describe()["name"])})
    mean, deviation = (
        tuple(map(float, values))
        for values in (model.standardization.mean, model.standardization.deviation)
    )
    return described.Description(
        format=request.to,  # type: ignore[arg-type]  # `checked` has looked it up
        quantized="dynamic" if request.quantized else None,
        file=described.FILES[request.to],
        sha256="",
        bytes=0,
        run=described.Provenance(trained.folder.name, trained.job, digest(model), __version__),
        model=of_model,
        input=described.Input(
            INPUT,
            np.dtype(problem.input_dtype).name,  # type: ignore[arg-type]
            problem.window_steps if windows else 0,
            signals.channels,
            _text(signals.units),
            tuple(problem.input_shape),
            signals.units,
            {sensor.name: sensor.kind for sensor in signals.sensors},
        ),
        output=described.Logits(OUTPUT, problem.outputs),
        labels=model.labels if len(model.labels) == problem.outputs else (),
        sampling_hz=signals.sampling_hz,
        stride=trained.window_stride if windows else 0,
        filters=signals.filters,  # type: ignore[arg-type]  # the set's manifest is checked
        standardization=described.ChannelStatistics(mean, deviation),
        check=described.Check(
            0, f"test windows of {_short(dataset.source)}", 0.0, None, None, None
        ),
        timing=described.Latency(1.0, 1.0, 1, 0),
        data=described.TrainingSet(
            examples.kind, _short(dataset.source), LICENCES.get(examples.kind)
        ),
        people=dataset.people,
        format_sha256=signals.format_sha256,
    )


def _text(units: tuple[str, ...]) -> str:
    """Return one unit for all channels, or one for each."""
    return ", ".join(units if len(set(units)) > 1 else units[:1])


def _short(source: str) -> str:
    """The end of a path: the folders above it stay on this machine."""
    return Path(source).name[-LONGEST_TEXT:]
