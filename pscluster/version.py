"""The version: of an installed wheel, which has it from the git tag, or of a checkout."""

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from cluster import __version__


def own_version() -> str:
    """That of the distribution which this file belongs to, e.g. `1.2.3`, else of a checkout: `1.2.3+checkout`."""
    here = Path(__file__).resolve()
    try:
        installed = distribution("pscluster")
    except PackageNotFoundError:
        return f"{__version__}+checkout"
    # A checkout may come before an installed wheel on the path.
    own = Path(str(installed.locate_file("pscluster/version.py"))).resolve()
    return installed.version if own == here else f"{__version__}+checkout"
