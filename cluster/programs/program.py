"""A program: what a person asks for, who runs it, what each process finds around itself. Pure.

`TF_CONFIG` is TensorFlow's (tf.distribute.cluster_resolver.TFConfigClusterResolver); RANK,
WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT are those of PyTorch's `torchrun`, which other
libraries read too.
"""

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from core.ground.errors import UsageError
from core.ground.files import parsed_json
from core.ground.shell import reached_directly

if TYPE_CHECKING:
    from core.inventory import Inventory


ROOT = Path(__file__).resolve().parents[2]
"""The folder of our packages, which a program must not find by name."""

FILES_VARIABLE = "PSCLUSTER_RUN"
"""Environment variable: the folder for what the program writes, its working folder."""
TOKEN_VARIABLE = "PSCLUSTER_PROGRAM_TOKEN"
"""Environment variable of the process that leads a program: what the runners on the other nodes
have to show."""
MARK_VARIABLE = "PSCLUSTER_PROGRAM"
"""Environment variable of every process of a program; its value is the run's own."""

OURS = ("PSCLUSTER_", "NOTIFY_SOCKET", "WATCHDOG_", "PYTHONSAFEPATH", "PYTHONPATH", "TF_CONFIG")
"""Beginnings of variables that belong to us and not to the program."""
THEIRS = ("PSCLUSTER_DATA",)

DEFAULTS: Mapping[str, str] = {
    "PYTHONUNBUFFERED": "1",  # its output comes as it is written
    "GRPC_FAIL_FAST": (
        "use_caller"
    ),  # as TensorFlow's guide to parameter servers sets it: a lost worker is an error
    "TF_CPP_MIN_LOG_LEVEL": "1",
}
"""Variables that a program finds unless the person who runs it has set them."""
LEGACY_KERAS = "TF_USE_LEGACY_KERAS"
_ASKS_FOR_LEGACY = re.compile(rb"^[ \t]*(import|from)[ \t]+tf_keras\b", re.MULTILINE)
_LOOKED_AT_BYTES = 1 << 20


@dataclass(frozen=True)
class ProgramMember:
    """One process of a program: `name` is `chief` or `worker:1`, others reach it at `host`."""

    name: str
    node: str
    host: str
    port: int
    rank: int = 0
    local_rank: int = 0

    @property
    def address(self) -> str:
        """Host and port of its TensorFlow server, if it starts one."""
        return f"{self.host}:{self.port}"

    @property
    def folder(self) -> str:
        """A name for its files: `worker-1`."""
        return self.name.replace(":", "-")


def chief_of(inventory: "Inventory") -> ProgramMember:
    """Return the one process of a program that runs on the coordinator's node, at its port."""
    task = inventory.task("coordinator", 0)
    return ProgramMember("chief", task.node, task.host, task.port)


def chief_config(inventory: "Inventory") -> str:
    """TF_CONFIG of the chief: parameter servers and workers as the inventory has them."""
    chief = chief_of(inventory)
    cluster = {
        "ps": [task.address for task in inventory.of_role("ps")],
        "worker": [task.address for task in inventory.of_role("worker")],
        "chief": [chief.address],
    }
    return json.dumps({"cluster": cluster, "task": {"type": "chief", "index": 0}})


def workers_of(inventory: "Inventory", ports: Sequence[int]) -> tuple[ProgramMember, ...]:
    """A process for each worker of the inventory, each at its own one of the `ports`."""
    members: list[ProgramMember] = []
    for task, port in zip(inventory.of_role("worker"), ports, strict=True):
        beside = sum(member.node == task.node for member in members)
        members.append(ProgramMember(task.name, task.node, task.host, port, task.index, beside))
    return tuple(members)


def worker_variables(
    members: Sequence[ProgramMember], worker: ProgramMember, master_port: int
) -> dict[str, str]:
    """Return TF_CONFIG of one worker among its equals, and the variables of `torchrun`.

    `master_port` is of rank 0's node.
    """
    cluster = {"worker": [peer.address for peer in members]}
    beside = sum(peer.node == worker.node for peer in members)
    return {
        "TF_CONFIG": json.dumps(
            {"cluster": cluster, "task": {"type": "worker", "index": worker.rank}}
        ),
        "RANK": str(worker.rank),
        "WORLD_SIZE": str(len(members)),
        "LOCAL_RANK": str(worker.local_rank),
        "LOCAL_WORLD_SIZE": str(beside),
        "MASTER_ADDR": members[0].host,
        "MASTER_PORT": str(master_port),
    }


def environment_of(
    base: Mapping[str, str],
    program: Path,
    files: Path,
    mark: str,
    variables: Mapping[str, str],
    python: str = sys.executable,
) -> dict[str, str]:
    """Return the whole environment of a program's process: `base` cleaned, defaults, `variables`.

    Commands are first looked for beside `python`, which runs the program. No proxy is asked for the
    other processes.
    """
    inherited = {
        name: value for name, value in base.items() if name in THEIRS or not name.startswith(OURS)
    }
    paths = [
        path
        for path in base.get("PYTHONPATH", "").split(os.pathsep)
        if path and Path(path).resolve() != ROOT
    ]
    if asks_for_legacy_keras(program):
        legacy = {LEGACY_KERAS: "1"}
    else:
        legacy = {}
    environment = {
        **DEFAULTS,
        **legacy,
        **inherited,
        FILES_VARIABLE: str(files),
        MARK_VARIABLE: mark,
        **variables,
    }
    if paths:
        environment["PYTHONPATH"] = os.pathsep.join(paths)
    beside = os.path.dirname(python)
    search_paths = [
        path for path in base.get("PATH", os.defpath).split(os.pathsep) if path != beside
    ]
    environment["PATH"] = os.pathsep.join([beside, *search_paths])
    return environment | reached_directly(environment, _hosts(variables.get("TF_CONFIG", "")))


def _hosts(config: str) -> list[str]:
    """Return the addresses of a TF_CONFIG of ours."""
    if config:
        tasks = parsed_json(config)["cluster"].values()
    else:
        tasks = ()
    return [address.rpartition(":")[0].strip("[]") for addresses in tasks for address in addresses]


def environment_of_ours(base: Mapping[str, str], mark: str) -> dict[str, str]:
    """The environment of a process of ours that is run like a program: it finds our packages."""
    inherited = {
        name: value
        for name, value in base.items()
        if name not in ("NOTIFY_SOCKET", "PSCLUSTER_RUN_FILE")
    }
    paths = [str(ROOT), base.get("PYTHONPATH", "")]
    return {
        **inherited,
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "PYTHONSAFEPATH": "1",
        MARK_VARIABLE: mark,
    }


def asks_for_legacy_keras(program: Path) -> bool:
    """Whether the program imports `tf_keras`: then `tf.keras` has to be the same Keras 2."""
    try:
        with program.open("rb") as source:
            return _ASKS_FOR_LEGACY.search(source.read(_LOOKED_AT_BYTES)) is not None
    except OSError:
        return False


On = Literal["chief", "workers"]
PLACES: tuple[On, ...] = get_args(On)
"""The places of a program: once on the coordinator's node, or once on each worker's node."""

MOST_RESTARTS = 100
MOST_ARGUMENT_BYTES = 128 << 10
"""The limit of all arguments together: Linux takes no longer single one."""


@dataclass(frozen=True)
class ProgramRequest:
    """One program to run: its file, arguments, place, and how often a loss may restart it.

    `requirements` is the operator's file of further packages, `python` the interpreter that has
    them; empty for the cluster's own environment. `bounded`: what a person is shown goes into a
    file of a node, which must not grow without end.
    """

    program: str
    arguments: tuple[str, ...] = ()
    on: On = "chief"
    restarts: int = 5
    requirements: str = ""
    python: str = ""
    bounded: bool = False

    @property
    def name(self) -> str:
        """The file's name."""
        return Path(self.program).name

    def to_text(self) -> str:
        """Return one line of JSON in ASCII."""
        return json.dumps(asdict(self))

    @classmethod
    def of_text(cls, text: str) -> "ProgramRequest":
        """The inverse of `to_text`. Raises UsageError for anything else."""
        try:
            document: Any = parsed_json(text)
            if not isinstance(document, dict) or not all(
                isinstance(argument, str) for argument in document["arguments"]
            ):
                raise ValueError("expected an object with a list of arguments")
            request = cls(**{**document, "arguments": tuple(document["arguments"])})
        except (ValueError, TypeError, KeyError) as problem:
            raise UsageError(
                f"--program: expected what `fab job run` writes, got {problem}"
            ) from None
        return request.checked()

    def checked(self) -> "ProgramRequest":
        """Itself. Raises UsageError where a value has another type, or is out of its bounds."""
        if self.on not in PLACES:
            raise UsageError(f"--on: expected {' or '.join(PLACES)}, got {str(self.on)!r:.80}")
        if type(self.restarts) is not int or not 0 <= self.restarts <= MOST_RESTARTS:
            raise UsageError(
                f"--restarts: expected a whole number from 0 to {MOST_RESTARTS}, got"
                f" {self.restarts!r:.80}"
            )
        texts: tuple[Any, ...] = (self.program, self.python, self.requirements, *self.arguments)
        if not all(isinstance(text, str) and "\0" not in text for text in texts):
            raise UsageError("--: expected arguments of text without NUL bytes")
        size = sum(len(text.encode("utf-8", "surrogateescape")) + 1 for text in self.arguments)
        if size > MOST_ARGUMENT_BYTES:
            raise UsageError(
                f"--: expected at most {MOST_ARGUMENT_BYTES} bytes of arguments, got {size}: use a"
                " file"
            )
        return self


def program_file(path: str) -> Path:
    """The program's absolute path. Raises UsageError unless it is a file that can be read."""
    file = Path(path)
    try:
        is_there = file.exists()
    except OSError as problem:
        raise UsageError(f"{path:.200}: the program cannot be read: {problem.strerror}") from None
    if not is_there:
        raise UsageError(f"{path:.200}: expected a Python program, found no such file")
    if not file.is_file():
        raise UsageError(
            f"{path}: expected a Python program, found no file but a folder or device; name the .py"
            " file"
        )
    try:
        with file.open("rb"):
            return file.absolute()
    except OSError as problem:
        raise UsageError(f"{path}: the program cannot be read: {problem.strerror}") from None
