"""What a role's entry point loads and holds once it serves."""

import re
from dataclasses import dataclass
from pathlib import Path

from core.metrics.process import memory_bytes
from tests.core.server.processes import running

HEAVY = frozenset(
    {
        "tensorflow",
        "keras",
        "numpy",
        "scipy",
        "pydantic",
        "yaml",
        "safetensors",
        "jinja2",
        "starlette",
    }
)
"""Packages that no role process needs: each costs megabytes on every node."""

MOST_ANONYMOUS_BYTES = 100e6
"""A lean server idles at 88 MB, a process that imports Python's TensorFlow at 225 MB and more
(docs/engine.md)."""

_IMPORTED = re.compile(r"^import time:\s+\d+ \|\s+\d+ \|\s*([\w.]+)$", re.MULTILINE)


@dataclass(frozen=True)
class Loaded:
    """Names of all modules that the process imported."""

    modules: frozenset[str]
    anonymous_bytes: int

    @property
    def packages(self) -> set[str]:
        return {name.partition(".")[0] for name in self.modules}

    def within(self, *packages: str) -> set[str]:
        """The modules that are one of these packages or lie in it."""
        return {
            name
            for name in self.modules
            if any(f"{name}.".startswith(f"{each}.") for each in packages)
        }


def loaded_by(module: str) -> Loaded:
    """Start the role, wait until it is ready, look, and end it."""
    with running(module, prefix=("env", "PYTHONPROFILEIMPORTTIME=1")) as role:
        held = memory_bytes(Path(f"/proc/{role.process.pid}/status").read_text())["RssAnon"]
        role.process.terminate()
        modules = frozenset(_IMPORTED.findall(role.output()))
    return Loaded(modules, held)
