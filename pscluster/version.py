"""The version: of an installed wheel, which has it from the git tag, or of a checkout."""

from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from core import __version__


def own_version() -> str:
    """Return the version of this file's distribution, or of a checkout: `1.2.3+checkout`."""
    this_file = Path(__file__).resolve()
    with suppress(PackageNotFoundError):
        installed = distribution("pscluster")
        # A checkout may come before an installed wheel on the path.
        if Path(str(installed.locate_file("pscluster/version.py"))).resolve() == this_file:
            return installed.version
    return f"{__version__}+checkout"
