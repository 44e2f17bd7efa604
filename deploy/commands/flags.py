"""Every flag of the commands: its name, its default and what `--help` says of it. A command names those it takes."""

import math
import re
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import Any

from cluster.errors import UsageError
from cluster.inventory.extensions import CODECS, MODELS, MODES

Names = tuple[str, ...]

USUAL_SECONDS = 2.0
SHORTEST_SECONDS, LONGEST_SECONDS = 0.2, 3600.0

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_AGO = re.compile(
    r"-?\s*(?P<count>\d{1,9})\s*(?P<unit>s|sec|seconds?|m|min|minutes?|h|hours?|d|days?|w|weeks?)(?P<ago>\s+ago)?"
)
_MONTHS = re.compile(r"\d\s*M\b")
"""Months in journalctl: refused, because a person who means minutes would get them, or the other way round."""
_TIMES = ("%H:%M", "%H:%M:%S")


def _flag(words: str, default: object = None, **more: object) -> Any:
    return field(default=default, metadata={"help": words, **more})


@dataclass(frozen=True)
class Flags:
    """The flags of one call; those that its command does not have keep their defaults.

    `set_` and `json_` are --set and --json, which Python already uses as names. `typed` is how a flag is spelled where
    its name is that of another one.
    """

    program: str | None = _flag("the program's file, which may stand without this flag")
    kind: str | None = _flag("what `render` writes, which may stand without this flag: kubernetes")
    requirements: str | None = _flag("file of further packages for the program, as pip reads it")
    on: str = _flag("where a program runs: chief (once, beside the coordinator) or workers (once for each)", "chief")
    restarts: str = _flag("how often a program is started again when it is killed or a server is lost", "5")
    inventory: str | None = _flag("the cluster's file; else $PSCLUSTER_INVENTORY, else ./inventory.yaml")
    set_: tuple[str, ...] = _flag(
        "override a key of the inventory for this call, e.g. jobs.train.epochs=3 (repeatable)", ()
    )
    json_: bool = _flag("one JSON object for programs instead of text for people", False)
    quiet: bool = _flag("no progress of jobs", False)
    log_format: str | None = _flag("of the logs: text, or json for one JSON object a line")
    log_level: str | None = _flag("the least that is logged: debug, info, warning or error")
    jobs: bool = _flag("run the inventory's jobs also when the cluster is running already", False)
    no_jobs: bool = _flag("only start the roles", False)
    role: tuple[str, ...] = _flag("only this role: ps, worker or e.g. worker:1 (repeatable)", ())
    node: tuple[str, ...] = _flag("only the roles of this node (repeatable)", ())
    limit: tuple[str, ...] = _flag("only these nodes, by name or by role (repeatable, or with commas)", ())
    retry: bool = _flag("only the nodes that failed in the last deployment; all of one that was cut short", False)
    dry_run: bool = _flag("show the plan, change nothing", False)
    serial: str = _flag("restart so many nodes at a time; 0 is all at once", "0")
    since: str | None = _flag("lines from then on, e.g. '10 min ago', 'today' or '22:45'")
    yes: bool = _flag("do not ask", False)
    with_data: bool = _flag("remove the shared data and the runs too", False)
    run_command: str | None = _flag("a command line for the node; else a shell")
    watch: str | bool | None = _flag("show it again every so many seconds (2) until Ctrl-C", valueless=True)
    follow: bool = _flag("then show every later line until Ctrl-C", False)
    lines: str | None = _flag("how many last lines; 20, or all with --since and --run")
    job: str | None = _flag("id of the job, as `fab job list` shows it; else the one that runs, or the newest")
    checkpoints: bool = _flag("fetch the checkpoints of the run too", False)
    name: str | None = _flag(
        "`new`: name of the app; `check`: a Python file, or a folder with app.py; `fetch`: hapt, uci-har or hhar; "
        "`show`: a path, or synthetic",
        positional=True,
    )
    file: str | None = _flag("the YAML file of the sweep", positional=True)
    app: str | None = _flag("your own model and data: a Python file, or a folder with app.py")
    mode: str | None = _flag(f"how updates meet: {MODES.words()}")
    codec: str | None = _flag(f"numbers on the wire: {CODECS.words()}")
    model: str | None = _flag(MODELS.words())
    hidden: str | None = _flag("units of each recurrent layer, 8 to 256")
    epochs: str | None = _flag("passes over the training windows")
    seed: str | None = _flag("of everything random in the job")
    folds: str | None = _flag("how many folds, or `groups` to leave out one person (or other group) at a time")
    seeds: str | None = _flag("how many seeds, from 0 on, or which, e.g. 0,3,7")
    data: str | None = _flag(
        "recordings: a zip, a folder, an .npz, or `synthetic`; of `recognise` the recording to label, a CSV or an .npz"
    )
    acceleration: str | None = _flag("unit of the recording's acceleration: g or m/s2")
    rotation: str | None = _flag("unit of the recording's angular velocity: rad/s or deg/s")
    template: str = _flag("what the new app is: keras, tabular, images, timeseries, text or bare", "keras")
    link: str = _flag("speed of each node's link in Mbit/s, for the expected speed-up", "300")
    refit: bool = _flag("train with some subjects held out, then once more on all of them", False)
    resume: bool = _flag("resume the newest unfinished run (of a sweep: the newest sweep), or that of --run", False)
    chaos: str | None = _flag("faults to inject, e.g. kill-worker:0.1,stop-worker:0.05")
    samples: str | None = _flag("random points of the pi job")
    run: str | None = _flag(
        "folder of the run: of the training to evaluate, to resume or to label with, else the newest; the one to "
        "export or to time; or whose logs are meant"
    )
    to: str | None = _flag("format of the export: onnx, litert, savedmodel or keras")
    quantize: str | None = _flag("dynamic: weights of an ONNX or LiteRT export as int8")
    rounds: str = _flag("how many rounds of windows are timed", "25")
    local: bool = _flag("a cluster of processes on this machine", False)
    workers: str = _flag("how many workers", "2")
    ps: str = _flag("how many parameter servers", "1")
    hosts: str | None = _flag("a cluster of machines: addresses and ranges, e.g. 192.168.1.16-31")
    user: str = _flag("account on every host", "pi")
    out: str | None = _flag(
        "where to write: a file (`init`; else it is printed), a folder (`deploy monitor`, `deploy render`, "
        "`data fetch`, `export`), an HTML page (`data show`)"
    )
    sha256: str | None = _flag("the hash that the fetched file must have, in the place of the pinned one")
    each: str = _flag("how many windows of each class are drawn, 0 to 9", "1")
    force: bool = _flag("overwrite the file", False)
    runs: tuple[str, ...] = _flag(
        "folder of a run, or its name below ./runs; several put runs side by side (repeatable)", (), typed="run"
    )
    report: str | None = _flag(
        "the file to write; else report.html in the run's folder, or with several runs ./comparison.html", typed="out"
    )
    export: str | None = _flag("folder that `fab export` wrote: the model to serve", typed="model")
    called: str = _flag("name of the served model, in its paths and among the versions", "har", typed="name")
    port: str = _flag("where clients connect; 0 is any free port", "8470")
    listen: str = _flag("address of this machine where clients connect; loopback alone is the default", "127.0.0.1")
    tls: bool = _flag("HTTPS, with a certificate that the service makes for this machine", False)
    certificate: str | None = _flag("HTTPS with a certificate of your own, a file in PEM format")
    key: str | None = _flag("file of the key of --certificate, in PEM format")
    mqtt: str | None = _flag("take readings at a broker of MQTT too: mqtt[s]://HOST[:PORT][/PREFIX]")
    mqtt_credentials: str | None = _flag("file with one line USER:PASSWORD for the broker")
    mqtt_authority: str | None = _flag("who signed the broker's certificate, a file in PEM format")
    no_token: bool = _flag("answer without a token, on loopback alone", False)
    batch_milliseconds: str | None = _flag("how long a request waits for others to be computed with; 2")
    shadow_seconds: str | None = _flag(
        "how long a promoted version is compared on live windows before it takes over; 10, and 0 is not at all"
    )
    least_agreement: str | None = _flag(
        "share of the compared windows that must get the served version's label, 0 to 1; 0"
    )

    @property
    def wanted(self) -> bool | None:
        """Whether the inventory's jobs are to run; None where the person leaves it open. Raises UsageError."""
        if self.jobs and self.no_jobs:
            raise UsageError("--jobs and --no-jobs: give one of them")
        return True if self.jobs else False if self.no_jobs else None


class Known:
    """One flag as invoke has to know it."""

    def __init__(self, of: Field[Any]) -> None:
        self.name = of.name
        self.typed: str = of.metadata.get("typed", of.name)  # on the command line, where `_` stands for `-`
        self.help: str = of.metadata["help"]
        self.valueless: bool = of.metadata.get("valueless", False)  # it may stand without a value
        self.positional: bool = of.metadata.get("positional", False)  # a word without dashes, which must be there
        self.repeatable = of.default == ()
        self.default = None if self.repeatable else of.default

    def value(self, given: Mapping[str, Any]) -> Any:
        """Its value among those that invoke read."""
        value = given.get(self.typed, self.default)
        return tuple(value or ()) if self.repeatable else value


FLAGS = {of.name: Known(of) for of in fields(Flags)}


def whole_number(flag: str, text: str, low: int, high: int) -> int:
    """The value of a flag: `1000000`, `1_000_000` or `1e6`. Raises UsageError unless it is from `low` to `high`."""
    try:
        number = int(text)
    except ValueError:
        try:
            real = float(text)
            number = int(real) if real == int(real) else low - 1
        except (ValueError, OverflowError):
            number = low - 1
    if not low <= number <= high:
        raise UsageError(f"{flag}: expected a whole number from {low} to {high}, got {text!r}")
    return number


def real_number(flag: str, text: str, low: float, high: float) -> float:
    """The value of a flag. Raises UsageError unless it is a number from `low` to `high`."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not low <= number <= high:
        raise UsageError(f"{flag}: expected a number from {low:g} to {high:g}, got {text!r:.80}")
    return number


def interval(watch: str | bool) -> float:
    """The seconds of `--watch [SECONDS]`. Raises UsageError for what is no number of seconds."""
    if watch is True:
        return USUAL_SECONDS
    try:
        seconds = float(watch)
    except ValueError:
        seconds = -1.0
    if not SHORTEST_SECONDS <= seconds <= LONGEST_SECONDS:
        raise UsageError(
            f"--watch: expected seconds from {SHORTEST_SECONDS} to {LONGEST_SECONDS:.0f}, or nothing, got {watch!r}"
        )
    return seconds


def seconds_of(since: str, now: datetime) -> float:
    """`--since` in seconds since the epoch: `10 min ago`, `-2h`, `today`, `22:45`, `2026-11-21 22:45`, ISO 8601.

    A time without a zone is this machine's, as `now` is. No node gets the text: its zone may differ, and journalctl 252
    refuses `2026-11-21T22:45:01Z`. Raises UsageError for anything else.
    """
    words = since.strip().lower()
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    named = {"now": now, "today": midnight, "yesterday": midnight - timedelta(days=1)}
    if words in named:
        return named[words].timestamp()
    ago = _AGO.fullmatch(words)
    if ago and (ago["ago"] or words.startswith("-")) and not _MONTHS.search(since):
        return now.timestamp() - int(ago["count"]) * _SECONDS[ago["unit"][0]]
    for form in _TIMES:
        try:
            found = datetime.strptime(words, form)
        except ValueError:
            continue
        return midnight.replace(hour=found.hour, minute=found.minute, second=found.second).timestamp()
    try:
        given = datetime.fromisoformat(words.removesuffix(" utc").upper())
        return (given.replace(tzinfo=UTC) if words.endswith(" utc") else given).timestamp()
    except (ValueError, OverflowError):
        raise UsageError(
            f"--since: expected a time such as '10 min ago', 'today', '22:45' or '2026-11-21 22:45', got {since!r}"
        ) from None
