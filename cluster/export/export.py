"""One export: written beside its place, compared with TensorFlow, then put there whole.

The comparison goes over the whole test set, and over the time of one window. Licences of published
sets are in their own words.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cluster.export.examples import HeldOutExamples, digest
from cluster.export.graph import CHUNK, INPUT, OUTPUT, Answers, traced
from cluster.export.request import ExportRefused, ExportRequest, TrainedRun, format_of, whole_export
from cluster.jobs.train_result import StoredModel
from core import __version__
from core.data.dataset import CLASSIFICATION
from core.data.signals import UNKNOWN
from core.exported import description as described
from core.exported.description import Check, Latency, measured
from core.exported.verified import LARGEST_DIFFERENCE, LARGEST_LOSS
from core.ground.errors import UsageError
from core.ground.lazy import tf
from core.models.network import BuiltIn

WARM_UP = 20
TIMED = 200
"""Calls with one window."""

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Agreement:
    """The sums of a comparison, window by window."""

    windows: int
    greatest: float
    same: int
    right_tensorflow: int
    right: int


def compare(
    tensorflow: Answers,
    exported: Answers,
    inputs: Any,
    classes: NDArray[np.int32] | None,
    progress: Progress,
) -> Agreement:
    """Compare both answers to every window, a chunk at a time.

    `classes` is None for a task without one class a window.
    """
    greatest = 0.0
    same = 0
    right_tensorflow = 0
    right = 0
    for begin in range(0, len(inputs), CHUNK):
        chunk = np.ascontiguousarray(inputs[begin : begin + CHUNK])
        expected, exported_logits = (
            np.asarray(answers(chunk)) for answers in (tensorflow, exported)
        )
        if not np.isfinite(expected).all():
            raise ExportRefused("TensorFlow answers no numbers: the model is not to be used")
        if exported_logits.shape != expected.shape or not np.isfinite(exported_logits).all():
            raise ExportRefused(
                f"expected logits {expected.shape}, the export answers"
                f" {exported_logits.shape}, or no numbers"
            )
        greatest = max(greatest, _difference(exported_logits, expected))
        if classes is not None:
            labels = classes[begin : begin + CHUNK]
            chosen = exported_logits.argmax(1)
            expected_labels = expected.argmax(1)
            same += int((chosen == expected_labels).sum())
            right += int((chosen == labels).sum())
            right_tensorflow += int((expected_labels == labels).sum())
        progress("checking", min(begin + CHUNK, len(inputs)), len(inputs))
    return Agreement(len(inputs), greatest, same, right_tensorflow, right)


def _difference(exported_logits: NDArray[Any], expected: NDArray[Any]) -> float:
    """Return the greatest difference of a logit.

    It is relative to the largest one of its window where that is above 1, as float32 is.
    """
    of_window = tuple(range(1, expected.ndim))
    apart = np.abs(exported_logits - expected).max(axis=of_window, initial=0.0)
    largest = np.abs(expected).max(axis=of_window, initial=1.0)
    return float((apart / largest).max(initial=0.0))


def check_of(compared: Agreement, source: str, *, quantized: bool, labelled: bool) -> Check:
    """The `check` of an export.

    Raises ExportRefused for one that answers otherwise than TensorFlow.
    """

    def share(count: int) -> float | None:
        if labelled:
            return count / compared.windows
        return None

    lost = (compared.right_tensorflow - compared.right) / compared.windows
    if quantized and lost > LARGEST_LOSS:
        raise ExportRefused(
            f"--quantize dynamic: expected at most {LARGEST_LOSS:.0%} fewer right labels than"
            f" TensorFlow, got {lost:.1%} fewer of {compared.windows:,} windows: leave"
            " --quantize out"
        )
    if not quantized and compared.greatest > LARGEST_DIFFERENCE:
        raise ExportRefused(
            f"expected logits within {LARGEST_DIFFERENCE:g} of TensorFlow's, got a difference of"
            f" {compared.greatest:.3g} in {compared.windows:,} windows: nothing was written; please"
            " report it"
        )
    return Check(
        compared.windows,
        source,
        compared.greatest,
        share(compared.same),
        share(compared.right_tensorflow),
        share(compared.right),
    )


def latency_of(answers: Answers, inputs: Any) -> Latency:
    """Median and 99th percentile of one window after another, on one thread."""
    windows = [
        np.ascontiguousarray(inputs[row : row + 1]) for row in range(min(TIMED, len(inputs)))
    ]
    seconds = []
    for turn in range(WARM_UP + TIMED):
        window = windows[turn % len(windows)]
        begin = time.perf_counter()
        np.asarray(answers(window))
        seconds.append(time.perf_counter() - begin)
    median, slow = np.percentile(1e3 * np.array(seconds[WARM_UP:]), [50, 99])
    return Latency(float(median), float(slow), 1, TIMED)


IN_UCI_S_LIST = "The UCI repository lists the set under CC BY 4.0."
"""The licence by what public projects, independent of each other, say of its pages; no machine of
this project could ask it. The sets of July 2015 and of November 2012 say otherwise themselves, so
both are quoted."""

LICENCE_OF_HAPT = (
    f'{IN_UCI_S_LIST} README.txt of the set: "Use of this dataset in publications must be'
    " acknowledged by referencing the following publications - Jorge-L. Reyes-Ortiz, Luca Oneto,"
    " Albert Samà, Xavier Parra, Davide Anguita. Transition-Aware Human Activity Recognition Using"
    " Smartphones. Neurocomputing. Springer 2015. This dataset is distributed AS-IS and no"
    " responsibility implied or explicit can be addressed to the authors or their institutions for"
    ' its use or misuse. Any commercial use is prohibited."'
)
"""The licence of the HAPT set of July 2015."""

LICENCE_OF_UCI_HAR = (
    f'{IN_UCI_S_LIST} README.txt of the set: "Use of this dataset in publications must be'
    " acknowledged by referencing the following publication [1]. [1] Davide Anguita, Alessandro"
    " Ghio, Luca Oneto, Xavier Parra and Jorge L. Reyes-Ortiz. Human Activity Recognition on"
    " Smartphones using a Multiclass Hardware-Friendly Support Vector Machine. International"
    " Workshop of Ambient Assisted Living (IWAAL 2012). Vitoria-Gasteiz, Spain. Dec 2012. This"
    " dataset is distributed AS-IS and no responsibility implied or explicit can be addressed to"
    ' the authors or their institutions for its use or misuse. Any commercial use is prohibited."'
)
"""The licence of the classic set of November 2012, by public copies of its README.txt."""

LICENCE_OF_HHAR = f"{IN_UCI_S_LIST} Its own readme.txt names none."
"""The licence of the HHAR set of 2015."""


LICENCES: Mapping[str, str] = {
    "hapt": LICENCE_OF_HAPT,
    "uci-har": LICENCE_OF_UCI_HAR,
    "hhar": LICENCE_OF_HHAR,
}
"""Licences by kind of recordings; nothing is known of others."""


LONGEST_TEXT = 400


def export(
    request: ExportRequest,
    trained: TrainedRun,
    model: StoredModel,
    examples: HeldOutExamples,
    progress: Progress,
) -> described.Description:
    """Write the export. Raises ClusterError; then nothing is left of it."""
    kind = format_of(request)
    labels = examples.classes()
    if request.quantized and labels is None:
        raise UsageError(
            "--quantize: is judged by right labels, and the task of this run is"
            f" {examples.dataset.task}: leave it out"
        )
    _refuse_positions(request, examples)
    draft = _draft(request, trained, model, examples)
    with whole_export(request.out) as folder:
        path = folder / draft.file
        kind.write(model, path, quantized=request.quantized)
        answers = kind.answers_of(path, draft)
        expected = traced(model)
        compared = compare(
            lambda windows: expected(tf.constant(windows)),
            answers,
            examples.inputs(),
            labels,
            progress,
        )
        sha256, size = measured(path)
        check = check_of(
            compared, draft.check.source, quantized=request.quantized, labelled=labels is not None
        )
        timing = latency_of(answers, examples.inputs())
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
    request: ExportRequest, trained: TrainedRun, model: StoredModel, examples: HeldOutExamples
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
