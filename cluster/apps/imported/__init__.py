"""The modules of apps. A process that an app starts itself finds them here by name, as pickle does.

The children of `multiprocessing` (spawn, forkserver) and of joblib import the module of each
function that they are sent. The module of an app lies in no folder of Python's, so the environment
says which file it is.
"""

import hashlib
import json
import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

from typing_extensions import override

from core.ground.files import parsed_json

VARIABLE = "PSCLUSTER_APP_MODULES"
"""Environment variable: a JSON object, the file of each module by its name in this package."""


def name_of(file: Path) -> str:
    """The full name of the module that this file of an app is; children find it from now on."""
    name = f"app_{hashlib.sha256(str(file).encode()).hexdigest()[:12]}"
    os.environ[VARIABLE] = json.dumps({**_files(), name: str(file)})
    return f"{__name__}.{name}"


def _files() -> dict[str, str]:
    try:
        files = parsed_json(os.environ.get(VARIABLE, "{}"))
    except ValueError:
        return {}
    if isinstance(files, dict):
        return files
    return {}


class _Finder(MetaPathFinder):
    """Finds the modules of this package that the environment names."""

    @override
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find the app's file; what lies beside it can be imported too, as in our own process."""
        package, _, name = fullname.rpartition(".")
        if package == __name__:
            file = _files().get(name)
        else:
            file = None
        if not isinstance(file, str):
            return None
        folder = os.path.dirname(file)
        if folder not in sys.path:
            sys.path.insert(0, folder)
        return spec_from_file_location(fullname, file)


sys.meta_path.append(_Finder())
