"""`fab serve` and `fab service`: a model answers over HTTP, a version at a time.

Here the service is a process of its own room, without TensorFlow, which ends with its command and
dies with it. On the nodes with the role `service` these commands run as its account.
"""

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from signal import Signals
from typing import TYPE_CHECKING, Any, BinaryIO

from core.ground.children import Child, EndRequest
from core.ground.errors import ClusterError, UsageError
from core.ground.files import json_object
from core.ground.ports import check_free
from core.logs import say
from deploy.commands.action import end_as_the_job_did, end_degraded, run_module, takes
from deploy.commands.flags import (
    ClusterFlags,
    JsonFlags,
    Names,
    TrustFlags,
    as_words,
    from_here,
    names,
    number,
    path,
    real_number,
    switch,
    text,
)
from deploy.commands.opening import open_cluster
from deploy.common.interrupts import interruptible
from deploy.common.project import environment_for_any_folder, module_command

if TYPE_CHECKING:
    from core.ground.parcel import Content
    from core.inventory import Inventory
    from core.inventory.sections import Service
    from deploy.cluster.connector import CommandResult, Connector


END_SECONDS = 20.0
"""The service has five for what it answers at the moment."""

LAST_PORT = 65_535
MOST_MEGABYTES = 1 << 20
EXPORT = "export"
"""Folder in a run that `--run` serves."""
MANAGE = "recognise.service.manage"
MODEL = "har"
"""Name of the served model where none is given."""


def _real_flag(help_text: str, most: float) -> Any:
    """Declare a flag with a number from 0 to `most`."""

    def read(flag: str, value: str) -> float:
        return real_number(flag, value, 0, most)

    return text(help_text, metavar="N", read=read)


def _model_name() -> Any:
    return text("name of the served model, in its paths and among the versions (har)", MODEL)


def _memory() -> Any:
    return number("memory of the service; a model gets two thirds (384)", 64, MOST_MEGABYTES, None)


class ModelOfRun(TrustFlags):
    """The flags that name what is served."""

    model: str | None = path("folder that `fab export` wrote: the model to serve", read=from_here)
    run: str | None = path("folder of the training to serve; exported first if needed")


class ServeFlags(ModelOfRun):
    """The flags of `serve`."""

    port: int = number("port where clients connect (8470); 0 is any free one", 0, LAST_PORT, 8470)
    listen: str = text("address of this machine where clients connect (loopback)", "127.0.0.1")
    host_name: Names = names(
        "a name by which clients call the service, such as that of a proxy before it (repeatable)"
    )
    tls: bool = switch("HTTPS, with a certificate that the service makes for this machine")
    certificate: str | None = path(
        "HTTPS with a certificate of your own, a file in PEM format", read=from_here
    )
    key: str | None = path("file of the key of --certificate, in PEM format", read=from_here)
    no_token: bool = switch("answer without a token, only on loopback")
    name: str = _model_name()
    memory_megabytes: int | None = _memory()
    batch_milliseconds: float | None = _real_flag(
        "how long a request waits for others of its batch (2)", 1000.0
    )


class VersionFlags(ClusterFlags):
    """The flags of an action on the versions of a model."""

    name: str = _model_name()


class TriedFlags(VersionFlags):
    """The flags of an action that tries a version before it is served."""

    memory_megabytes: int | None = _memory()


class PromoteFlags(ModelOfRun, TriedFlags):
    """The flags of `service promote`."""


class VersionListFlags(VersionFlags, JsonFlags):
    """The flags of `service list`."""


@takes(ServeFlags)
def serve(flags: ServeFlags) -> None:
    """Serve a model over HTTP until Ctrl-C: `--run`, `--model`, else the promoted one."""
    attributes = (flag.attribute for flag in flags.declared() if flag not in ModelOfRun.declared())
    arguments = [*as_words(flags, *attributes), *_export(flags)]
    if sys.stdout.isatty():  # the link has the token, and a log is read by others
        arguments.insert(0, "--link")
    end_as_the_job_did(_in_foreground(module_command("recognise.service", *arguments)))


@takes(PromoteFlags)
def promote(flags: PromoteFlags) -> None:
    """Make a run or an export the version to serve; a running service takes it over."""
    export = _export(flags)
    if flags.inventory is None:
        memory = as_words(flags, "memory_megabytes")
        run_module(MANAGE, "promote", "--name", flags.name, *memory, *export)
        return
    if not export:
        raise UsageError("promote: expected --model EXPORT or --run RUN")
    _on_nodes(flags, "promote", "--model", "-", export=Path(export[-1]))


@takes(TriedFlags)
def rollback(flags: TriedFlags) -> None:
    """Serve the version before the current one again."""
    _here_or_on_nodes(flags, "rollback", *as_words(flags, "memory_megabytes"))


@takes(VersionListFlags)
def list_(flags: VersionListFlags) -> None:
    """Show the versions, each compared with its hash."""
    _here_or_on_nodes(flags, "list", *as_words(flags, "json_"))


@takes(VersionFlags)
def token(flags: VersionFlags) -> None:
    """Print the token that clients send."""
    _here_or_on_nodes(flags, "token")


def _here_or_on_nodes(flags: VersionFlags, action: str, *more: str) -> None:
    if flags.inventory is None:
        run_module(MANAGE, action, "--name", flags.name, *more)
    else:
        _on_nodes(flags, action, *more)


def _on_nodes(flags: VersionFlags, action: str, *more: str, export: Path | None = None) -> None:
    if flags.name != MODEL:
        raise UsageError("--name: on nodes the inventory has it, `service.model`")
    if getattr(flags, "memory_megabytes", None) is not None:
        raise UsageError(
            "--memory-megabytes: on nodes the inventory has it, `service.memory_megabytes`"
        )
    manage_on_nodes(flags, action, *more, export=export)


def _export(flags: ModelOfRun) -> Sequence[str]:
    """Return `--model FOLDER` of the export to serve; nothing without one.

    Exports a run that has no export yet.
    """
    if flags.model and flags.run:
        raise UsageError("--model and --run: give one of them")
    if flags.model:
        return ("--model", flags.model)
    if not flags.run:
        return ()
    run = Path(from_here("--run", flags.run))
    if not run.is_dir():
        run = Path("runs", flags.run).absolute()
    export = run / EXPORT
    if not export.exists():
        _refuse_no_windows(run)  # before an export takes seconds, too
        if isinstance(flags, ServeFlags):
            check_free(flags.listen, flags.port, "the service")  # before an export takes seconds
        arguments = (f"--run={run}", "--to=onnx", f"--out={export}", "--quiet")
        end_as_the_job_did(_in_foreground(module_command("cluster.export", *arguments)))
    return ("--model", str(export))


def _refuse_no_windows(run: Path) -> None:
    """Raise UsageError for the run of an app whose model takes other things than windows."""
    app = (json_object(run / "model" / "model.json") or {}).get("app")
    if not isinstance(app, dict):
        return
    shape = app.get("input_shape")
    dtype = app.get("input_dtype")
    if isinstance(shape, list) and (len(shape) != 2 or dtype != "float32"):
        raise UsageError(
            f"{run.name}: a service takes windows (samples, channels) in float32, and this model"
            f" takes {tuple(shape)} in {dtype}: fab export --run {run} --to onnx --out model, then"
            ' onnxruntime.InferenceSession("model/model.onnx").run(None, {"windows": x})'
        )


def _in_foreground(command: Sequence[str]) -> int:
    """Run a process until it ends; an interrupt ends it, and is raised again then.

    Main thread only.
    """
    environment = environment_for_any_folder()
    with (
        interruptible(),
        Child(
            command, environment=environment, ending=EndRequest(Signals.SIGINT, END_SECONDS)
        ) as child,
    ):
        return child.wait()


NODE_SECONDS = 120.0
"""A node opens and warms a version within it."""
LARGEST_BYTES = 256 << 20


def manage_on_nodes(
    flags: ClusterFlags, action: str, *more: str, export: Path | None = None
) -> None:
    """Run an action on each node with the role, and show what each said.

    The command ends degraded where a node failed. `export` is the folder of an export, which goes
    to every node. Raises UsageError.
    """
    from core.ground.parcel import blocks_of
    from deploy.cluster.places import SERVICE_ACCOUNT

    opened = open_cluster(flags)
    nodes = _nodes_that_serve(opened.inventory)
    command_line = command_on_node(opened.inventory.service, action, *more)

    def run_action(node: "Connector") -> "CommandResult":
        return node.run(
            command_line,
            stdin=blocks_of(sent),
            user=SERVICE_ACCOUNT,
            deadline_seconds=NODE_SECONDS,
        )

    failed = False
    with ExitStack() as resources:
        sent: Content = b""
        if export is not None:
            sent = resources.enter_context(packed_export(export))
        fleet = resources.enter_context(opened.cluster.fleet())
        for name, result in fleet.each(run_action, nodes).items():
            if isinstance(result, ClusterError):
                say(str(result), error=True)
                failed = True
                continue
            for line in result.text.splitlines() if result.ok else result.last_lines:
                say(line if flags.for_programs else f"{name}: {line}", error=not result.ok)
            failed = failed or not result.ok
    if failed:
        end_degraded()


def command_on_node(service: "Service", action: str, *more: str) -> list[str]:
    """The words of one action on a node."""
    from deploy.cluster.places import CURRENT, NodePlaces
    from deploy.render.units import SERVICE_DATA

    return [
        "env",
        f"PYTHONPATH={CURRENT}",
        "PYTHONSAFEPATH=1",
        NodePlaces().python,
        "-m",
        "recognise.service.manage",
        action,
        "--state",
        SERVICE_DATA,
        "--name",
        service.model,
        "--memory-megabytes",
        str(service.memory_megabytes),
        *more,
    ]


def packed_export(export: Path) -> AbstractContextManager[BinaryIO]:
    """Pack an export's files as a tar. Raises UsageError for one that the service does not take."""
    from core.exported.description import FILES, NAME, read_description
    from core.ground.parcel import opened, packed

    described = read_description(export)
    if described.file not in (FILES["onnx"], FILES["litert"]):
        raise UsageError(
            f"{export}: expected an export in onnx or litert, got {described.file}: `fab export"
            " --to onnx`"
        )
    if described.bytes > LARGEST_BYTES:
        raise UsageError(
            f"{export}: expected a model of at most {LARGEST_BYTES:,} bytes, got"
            f" {described.bytes:,}"
        )
    file, model = export / NAME, export / described.file
    files = {NAME: (file, file.stat().st_size), described.file: (model, described.bytes)}
    return packed(opened(files), compressed=False)


def _nodes_that_serve(inventory: "Inventory") -> Sequence[str]:
    if not inventory.service_nodes:
        raise UsageError(
            f"{inventory.path}: no node has the role `service`: give it to one, or leave"
            " --inventory out for the versions of this folder"
        )
    return inventory.service_nodes
