"""One export: written beside its place, compared with TensorFlow on the whole test set, and then put there whole."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from cluster import __version__
from cluster.atomic_write import PARTIAL
from cluster.data.dataset import CLASSIFICATION
from cluster.errors import ClusterError, UsageError, reason_of
from cluster.export.check import Progress, compare, judged, timed
from cluster.export.examples import Examples, digest
from cluster.export.graph import INPUT, OUTPUT, traced
from cluster.export.known_sets import known, names
from cluster.export.trained_run import Trained
from cluster.export.wish import Wish, checked, refuse_taken
from cluster.exported import description as described
from cluster.exported.files import measured
from cluster.jobs.train_result import StoredModel
from cluster.models.network import BuiltIn

import tensorflow as tf  # isort: skip

LONGEST_TEXT = 400


def export(
    wish: Wish, trained: Trained, model: StoredModel, examples: Examples, progress: Progress
) -> described.Description:
    """Write the export. Raises ClusterError; then nothing is left of it."""
    kind, labels = checked(wish), examples.classes()
    if wish.quantized and labels is None:
        raise UsageError(
            f"--quantize: is judged by right labels, and the task of this run is {examples.dataset.task}: leave it out"
        )
    _refuse_positions(wish, examples)
    draft = _draft(wish, trained, model, examples)
    with _whole(wish.out) as folder:
        path = folder / draft.file
        kind.write(model, path, quantized=wish.quantized)
        answers, expected = kind.opened(path, draft), traced(model)
        compared = compare(lambda windows: expected(tf.constant(windows)), answers, examples.inputs(), labels, progress)
        sha256, size = measured(path)
        check = judged(compared, draft.check.source, quantized=wish.quantized, labelled=labels is not None)
        timing = timed(answers, examples.inputs())
        description = replace(draft, sha256=sha256, bytes=size, check=check, timing=timing)
        described.write(folder, description)
        described.read(folder)
    return description


def _refuse_positions(wish: Wish, examples: Examples) -> None:
    """`export.json`, and what opens an export by it, knows one answer an example."""
    shape = examples.dataset.targets.shape
    if examples.dataset.task == CLASSIFICATION and shape and wish.to in ("onnx", "litert"):
        raise UsageError(
            f"--to {wish.to}: the model names a class at each of {' x '.join(map(str, shape))} positions, which its "
            "readers do not know: use --to savedmodel or keras"
        )


@contextmanager
def _whole(out: Path) -> Iterator[Path]:
    """A folder beside `out` that takes its place at the end, or goes. Those of dead processes go as well."""
    partial = out.with_name(f".{out.name}.{os.getpid()}{PARTIAL}")
    for left in out.parent.glob(f".{out.name}.*{PARTIAL}"):
        number = left.name.removesuffix(PARTIAL).rpartition(".")[2]
        if number.isdecimal() and not Path("/proc", number).exists():
            shutil.rmtree(left, ignore_errors=True)
    try:
        try:
            partial.mkdir()
            yield partial
            refuse_taken(out)
            partial.rename(out)
        finally:
            with suppress(OSError):
                shutil.rmtree(partial)
    except OSError as problem:
        raise ClusterError(
            f"{out}: the export cannot be written ({reason_of(problem)}): free some space, or name another folder with "
            "--out"
        ) from None


def _draft(wish: Wish, trained: Trained, model: StoredModel, examples: Examples) -> described.Description:
    """The description with what is known before anything is written."""
    network, dataset = model.network, examples.dataset
    problem = network.problem
    windows = dataset.holds_windows
    facts = known(examples.kind, dataset.channels)
    if isinstance(network, BuiltIn):
        of_model = described.Network(network.name, network.config.model_dump(mode="json"))
    else:
        of_model = described.Network("app", {"name": str(network.describe()["name"])})
    mean, deviation = (
        tuple(map(float, values)) for values in (model.standardization.mean, model.standardization.deviation)
    )
    return described.Description(
        format=wish.to,  # type: ignore[arg-type]  # `checked` has looked it up
        quantized="dynamic" if wish.quantized else None,
        file=described.FILES[wish.to],
        sha256="",
        bytes=0,
        run=described.Run(trained.folder.name, trained.job, digest(model), __version__),
        model=of_model,
        input=described.Input(
            INPUT,
            np.dtype(problem.input_dtype).name,  # type: ignore[arg-type]  # prepared data have no other
            problem.window_steps if windows else 0,
            names(dataset.channels) if windows else (),
            facts.unit,
            tuple(problem.input_shape),
        ),
        output=described.Output(OUTPUT, problem.outputs),
        labels=model.labels if len(model.labels) == problem.outputs else (),
        sampling_hz=dataset.sampling_hz or facts.sampling_hz,
        stride=trained.window_stride if windows else 0,
        filters=dataset.filters or facts.filters,  # type: ignore[arg-type]  # the set's manifest is checked
        standardization=described.Standardization(mean, deviation),
        check=described.Check(0, f"test windows of {_short(dataset.source)}", 0.0, None, None, None),
        timing=described.Timing(1.0, 1.0, 1, 0),
        data=described.Data(examples.kind, _short(dataset.source), facts.licence),
    )


def _short(source: str) -> str:
    """The end of a path: the folders above it stay on this machine."""
    return Path(source).name[-LONGEST_TEXT:]
