"""docs/metrics.md from the catalogue.

`python -m tools.metrics_reference` prints it, `--write` saves it.
"""

import argparse
import sys
from pathlib import Path

from jinja2 import StrictUndefined, Template

from core.logs import say
from core.metrics.catalogue import Exporter, Metric, exported_by

PAGE = Path("docs/metrics.md")
TEMPLATE = Path(__file__).with_suffix(".md.j2")

TITLES: dict[Exporter, tuple[str, str]] = {
    "every process": (
        "Every process",
        "Parameter servers, workers and the coordinator, each about itself and its node.",
    ),
    "every job": ("Every job", "The coordinator, whatever it runs."),
    "training": ("Training", "The coordinator, while `train` runs."),
    "pi": ("Pi", "The coordinator, while `pi` runs."),
    "program": (
        "Program",
        "The coordinator, while `run` runs a program: `member` is `chief` or e.g. `worker:1`.",
    ),
    "sweep": (
        "Sweep",
        "The coordinator, while `sweep` runs; each run of a sweep by itself exports nothing.",
    ),
    "service": (
        "Service",
        (
            'A [service](service.md) with `role="service"` and `task="0"`: at `/metrics` of its own'
            " port, behind\nits token. [Nodes](service.md#on-nodes) and"
            " [pods](containers.md#the-recognition-service) answer at\nport 9204 too, over plain"
            " HTTP without a token."
        ),
    ),
}


def render_reference() -> str:
    """Return the page in Markdown."""
    sections = [(*titles, exported_by(exporter)) for exporter, titles in TITLES.items()]
    text = TEMPLATE.read_text(encoding="utf-8")
    page = Template(text, trim_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined)
    return page.render(sections=sections, meaning=_meaning)


def _labels(entry: Metric) -> str:
    return "; ".join(
        f"`{label}`" + (f": {', '.join(f'`{value}`' for value in values)}" if values else "")
        for label, values in entry.labels.items()
    )


def _meaning(entry: Metric) -> str:
    meaning = entry.help
    if entry.subject == "worker":
        meaning += ", by worker"
    if entry.where:
        meaning += f". Only {entry.where}"
    if entry.labels:
        meaning += f" ({_labels(entry)})"
    return meaning


def main(arguments: list[str] | None = None) -> int:
    """Print the page, or write it into the project. Returns the exit code."""
    return print_or_write("tools.metrics_reference", PAGE, render_reference(), arguments)


def print_or_write(module: str, path: Path, page: str, arguments: list[str] | None) -> int:
    """Run the command line of every page that is made from the code.

    `path` is relative to the project.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m {module}", description=f"{path}, made from the code."
    )
    parser.add_argument("--write", action="store_true", help=f"write {path} instead of printing")
    if parser.parse_args(arguments).write:
        (Path(__file__).parents[1] / path).write_text(page, encoding="utf-8")
    else:
        say(page, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
