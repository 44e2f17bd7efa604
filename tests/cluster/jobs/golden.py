"""What `mode: single` ends with: all exact modes do, on every processor.

`python -m tests.cluster.jobs.golden` trains each recipe of golden.yaml and writes its digest and
its loss, after a change that means to change bits.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.jobs.cluster import Cluster, cluster_of

FILE = Path(__file__).with_name("golden.yaml")
HEADER = "# python -m tests.cluster.jobs.golden writes what `mode: single` ends with.\n"


def recipes() -> dict[str, dict[str, Any]]:
    """By name: settings (`small` ones add to those of `Cluster.train`), and their figures."""
    content: dict[str, dict[str, Any]] = yaml.safe_load(FILE.read_text())
    return content


def golden(settings: Sequence[str], figure: str = "parameters_sha256") -> Any:
    """Return a figure of the recipe with these settings."""
    (recipe,) = (each for each in recipes().values() if set(each["settings"]) == set(settings))
    return recipe[figure]


def trained(cluster: Cluster, settings: Sequence[str], small: bool = True) -> dict[str, Any]:
    """Train a recipe on the coordinator alone."""
    words = cluster.settings(*settings) if small else settings
    result = cluster.job("train", *words, "jobs.train.mode=single", code=0).result
    ended = {"parameters_sha256": result["parameters_sha256"], "loss": result["final"]["loss"]}
    return {"settings": settings, "small": small, **ended}


def main() -> None:
    """Train all and write the file."""
    with cluster_of(1, start=False) as cluster:
        content = {
            name: trained(cluster, recipe["settings"], recipe["small"])
            for name, recipe in recipes().items()
        }
    FILE.write_text(HEADER + yaml.safe_dump(content, sort_keys=False, width=100))


if __name__ == "__main__":
    main()
