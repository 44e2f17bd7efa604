"""`fab serve` and `fab service`: a trained model answers over HTTP on this machine, a version at a time.

The service is a process of its own room, without TensorFlow. It ends with its command and dies with it.
"""

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from cluster.errors import UsageError
from deploy.commands.edge import end_as_the_job_did, takes
from deploy.commands.flags import Flags, real_number, whole_number
from deploy.common.interrupts import interruptible
from deploy.common.project import die_with_parent, environment_for_any_folder, module_command

END_SECONDS = 20.0
"""The service has five for what it answers at the moment."""

LAST_PORT = 65_535
EXPORT = "export"
"""In a run's folder: what `--run` serves."""


_PACE = {"batch_milliseconds": 1000.0, "shadow_seconds": 3600.0, "least_agreement": 1.0}
"""Flags with the greatest value that the service takes; the least is 0."""


@takes(
    "export run port listen tls certificate key no_token called mqtt mqtt_credentials mqtt_authority "
    "batch_milliseconds shadow_seconds least_agreement"
)
def serve(flags: Flags) -> None:
    """Serve a model over HTTP until Ctrl-C: `fab serve --run RUN` or `--model EXPORT`, else the promoted version."""
    port = whole_number("--port", flags.port, 0, LAST_PORT)
    words = ["--name", flags.called, "--port", str(port), "--listen", flags.listen, "--link"]
    words += ["--no-token"] if flags.no_token else []
    words += ["--tls"] if flags.tls else []
    words += ["--mqtt", flags.mqtt] if flags.mqtt else []
    files = {
        "--certificate": flags.certificate,
        "--key": flags.key,
        "--mqtt-credentials": flags.mqtt_credentials,
        "--mqtt-authority": flags.mqtt_authority,
    }
    for flag, path in files.items():
        words += [flag, os.path.abspath(os.path.expanduser(path))] if path else []
    for name, most in _PACE.items():
        flag, given = f"--{name.replace('_', '-')}", getattr(flags, name)
        words += [] if given is None else [flag, str(real_number(flag, given, 0, most))]
    export = _export(flags)
    end_as_the_job_did(_in_foreground(module_command("recognise.service", *words, *export)))


@takes("export run called inventory set_")
def promote(flags: Flags) -> None:
    """Make a version of a run or an export and serve it from now on; a service that runs takes it over."""
    export = _export(flags)
    if flags.inventory is None:
        _manage("promote", "--name", flags.called, *export)
        return
    if not export:
        raise UsageError("promote: expected --model EXPORT or --run RUN")
    _on_nodes(flags, "promote", "--model", "-", export=Path(export[-1]))


@takes("called inventory set_")
def rollback(flags: Flags) -> None:
    """Serve the version before the current one again."""
    if flags.inventory is None:
        _manage("rollback", "--name", flags.called)
    else:
        _on_nodes(flags, "rollback")


@takes("called inventory set_ json_")
def list_(flags: Flags) -> None:
    """Show the versions, each compared with its hash."""
    more = ["--json"] if flags.json_ else []
    if flags.inventory is None:
        _manage("list", "--name", flags.called, *more)
    else:
        _on_nodes(flags, "list", *more)


@takes("called inventory set_")
def token(flags: Flags) -> None:
    """Print the token that clients send."""
    if flags.inventory is None:
        _manage("token", "--name", flags.called)
    else:
        _on_nodes(flags, "token")


def _on_nodes(flags: Flags, action: str, *more: str, export: Path | None = None) -> None:
    from deploy.commands.service_nodes import manage_on_nodes

    if flags.called != Flags.called:
        raise UsageError("--name: on nodes the inventory has it, `service.model`")
    manage_on_nodes(flags, action, *more, export=export)


def _manage(*words: str) -> None:
    command = module_command("recognise.service.manage", *words)
    end_as_the_job_did(subprocess.run(command, env=environment_for_any_folder()).returncode)


def _export(flags: Flags) -> Sequence[str]:
    """`--model FOLDER` of the export to serve; nothing without one. Exports a run that has no export yet."""
    if flags.export and flags.run:
        raise UsageError("--model and --run: give one of them")
    if not flags.run:
        return ("--model", os.path.abspath(os.path.expanduser(flags.export))) if flags.export else ()
    run = Path(os.path.abspath(os.path.expanduser(flags.run)))
    run = run if run.is_dir() else Path("runs", flags.run).absolute()
    export = run / EXPORT
    if not export.exists():
        words = (f"--run={run}", "--to=onnx", f"--out={export}", "--quiet")
        end_as_the_job_did(_in_foreground(module_command("cluster.export", *words)))
    return ("--model", str(export))


def _in_foreground(command: Sequence[str]) -> int:
    """Run a process until it ends; an interrupt ends it, and is raised again then. Main thread only."""
    with interruptible():
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            env=environment_for_any_folder(),
            process_group=0,  # a terminal's Ctrl-C does not reach it: this process ends it, once
            preexec_fn=die_with_parent(),
        )
        try:
            return child.wait()
        finally:
            if child.poll() is None:
                child.send_signal(signal.SIGINT)
                _wait_or_kill(child)


def _wait_or_kill(child: "subprocess.Popen[bytes]") -> None:
    """A second interrupt, or too long a wait, kills it."""
    try:
        child.wait(END_SECONDS)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        child.kill()
        child.wait()


SERVICE_ACTIONS = (promote, rollback, list_, token)
