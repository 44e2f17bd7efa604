"""`python -m cluster.export --run FOLDER --to FORMAT --out FOLDER` exports a trained run.

For `fab export`, which knows no TensorFlow.
"""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.apps.app import remove_copies
from cluster.apps.copy import own_app
from cluster.apps.environments import continue_in, local_environments
from cluster.apps.files import TRUST_FLAG, trust
from cluster.export.caged import FLAG as IN_CAGE
from cluster.export.caged import CagedExport, ChildEnded, blamed_on_cage
from cluster.export.request import ExportRequest, folder_of, format_of, read_result
from core.exported.description import NAME
from core.ground.errors import ClusterError, ExitCode, UsageError
from core.logs import say, say_json
from core.logs.bars import bar

if TYPE_CHECKING:
    from core.exported.description import Description


def main(arguments: Sequence[str] | None = None) -> int:
    """Export; the last line says what was written. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m cluster.export", description=__doc__)
    parser.add_argument(
        "--run", required=True, help="folder of a finished training, or its name below ./runs"
    )
    parser.add_argument("--to", required=True, help="onnx, litert, savedmodel or keras")
    parser.add_argument("--out", required=True, help="the folder to make")
    parser.add_argument("--quantize", help="dynamic: weights as int8")
    parser.add_argument("--data", help="the run's recordings, where they lie elsewhere now")
    parser.add_argument(
        TRUST_FLAG,
        metavar="DIGEST",
        help="from now on the app of this digest is your own: its code may run",
    )
    parser.add_argument(IN_CAGE, action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="export.json itself on standard output")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    options = parser.parse_args(arguments)
    if arguments is None:
        command_line = sys.argv[1:]
    else:
        command_line = list(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that what is half-written goes
    try:
        description = _exported(options, command_line)
    except ChildEnded as problem:
        return problem.code
    except ClusterError as problem:
        say(blamed_on_cage(problem) if options.in_cage else problem, error=True)
        return int(problem.exit_code)
    except PermissionError as problem:
        if not options.in_cage:
            raise
        say(blamed_on_cage(problem), error=True)
        return ExitCode.FAILED
    except KeyboardInterrupt:
        return ExitCode.CANCELLED
    if options.in_cage:
        return ExitCode.DONE  # the process outside reads what was made
    _show(description, Path(os.path.abspath(options.out)), as_json=options.json)
    return ExitCode.DONE


def _exported(options: argparse.Namespace, command_line: Sequence[str]) -> "Description":
    if options.quantize not in (None, "dynamic"):
        raise UsageError(
            f"--quantize: expected dynamic, or no --quantize, got {options.quantize!r:.80}"
        )
    request = ExportRequest(
        options.to, options.quantize is not None, Path(os.path.abspath(options.out))
    )
    format_of(request)
    if options.trust_app is not None:
        trust(options.trust_app)
    trained = read_result(folder_of(options.run))
    app = own_app(trained.folder)
    if app is not None and not options.in_cage:
        return CagedExport(request, trained, app, options.data, options.quiet).export()
    if app is not None and app.environment:
        continue_in(local_environments(), app.environment, ["cluster.export", *command_line])
    # TensorFlow takes seconds to import: not before what can be refused without it is.
    from core.engine.environment import loading_quietly

    with loading_quietly():
        import core.engine.graph_options  # noqa: F401  (loads TensorFlow)
        from cluster.export.examples import examples_of, read_model
        from cluster.export.export import export
        from cluster.export.graph import one_thread
    one_thread()
    model = read_model(trained)
    with bar(quiet=options.quiet) as report:
        examples = examples_of(trained, model, options.data, report)
        return export(request, trained, model, examples, report)


def _show(description: "Description", out: Path, *, as_json: bool) -> None:
    if as_json:
        say_json({**asdict(description), "path": str(out)})
        return
    check = description.check
    timing = description.timing
    if description.input.samples:
        unit = "window"
    else:
        unit = "example"
    if check.same_labels is None:
        same = ""
    else:
        same = f", {check.same_labels:.2%} of the labels the same"
    say(
        f"checked: {check.windows:,} test {unit}s, answers within {check.greatest_difference:.2g}"
        f" of TensorFlow's{same}; one {unit} {timing.median_ms:.2f} ms, p99 {timing.p99_ms:.2f} ms"
        " on one thread"
    )
    if description.data.licence:
        say(f"data: {description.data.licence}")
    say(f"export: {out / description.file} ({description.bytes:,} bytes), {NAME}")


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    remove_copies()
    os._exit(code)  # TensorFlow's threads have nothing left to do
