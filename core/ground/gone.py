"""What earlier versions had: each name with what to use instead."""

from collections.abc import Mapping

Successors = Mapping[str, str]
"""Names, each with what to use instead."""

_WATCH = (
    "leave it out: a promoted version takes over once it answers, and the version before returns if"
    " its process ends twice in a minute"
)

KEYS: Successors = {
    "clip_seconds": "sounds are read by data() of an app (docs/apps.md#tables-images-and-sounds)",
    "columns": "tables are read by data() of an app (docs/apps.md#tables-images-and-sounds)",
    "image_channels": "images are read by data() of an app (docs/apps.md#tables-images-and-sounds)",
    "image_size": "images are read by data() of an app (docs/apps.md#tables-images-and-sounds)",
    "distill": "leave it out: no run teaches another now, and the loss is that of the labels",
    "keep_models": "leave it out: it kept teachers; `fab job train` keeps the model that it trains",
    "recognise": "leave it out: `python -m recognise` labels a recording on one machine",
    "micro_batches": (
        "it is `slots` now: leave it out, 32 on every cluster, or write a power of two"
    ),
    "signing_key": "leave it out: nodes compare each file with its SHA-256 instead",
    "former_signing_key": "leave it out: nodes compare each file with its SHA-256 instead",
    "references": "leave it out: experiments/pages/tables.md links to the papers' tables",
    "shadow_seconds": _WATCH,
    "least_agreement": _WATCH,
}
"""Keys of inventories, sweeps, formats and apps, without their section."""

COMMANDS: Successors = {
    "job recognise": "`python -m recognise` labels a recording on one machine, by an export",
    "job inference": "`python -m benchmarks.inference` on a node times exports there",
    "deploy sbom": "`make sbom` in the checkout writes the packages of uv.lock as CycloneDX 1.5",
}
"""Commands by their words, such as `job recognise`."""

_POSTS = "post readings over HTTP, as docs/service.md shows for Sensor Logger"
FLAGS: Successors = {
    "--mqtt": _POSTS,
    "--mqtt-credentials": _POSTS,
    "--mqtt-authority": _POSTS,
    "--shadow-seconds": _WATCH,
    "--least-agreement": _WATCH,
}
"""Flags of commands, such as `--mqtt`."""

KINDS: Successors = {
    "audio": (
        "read sounds by data() of an app, in three lines (docs/apps.md#tables-images-and-sounds)"
    ),
    "bare": "no template has it now: copy examples/bare, an app without Keras",
    "csv": (
        "read a table by data() of an app: fab app new NAME --template tabular, then --app NAME"
        " beside --data; recordings need --format, or a format.yaml (docs/recordings.md)"
    ),
    "images": (
        "read images, in a folder for each class, by data() of an app: fab app new NAME --template"
        " images, then --app NAME beside --data"
    ),
    "parquet": (
        "read a table by data() of an app, in three lines (docs/apps.md#tables-images-and-sounds);"
        " recordings need --format, or a format.yaml (docs/recordings.md)"
    ),
    "text": "no template has it now: copy examples/characters, an app that reads texts",
    "timeseries": "no template has it now: take tabular, and give data() whole series by `groups`",
}
"""Names that a key took as its value, such as a kind of data."""
