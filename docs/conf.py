"""How Sphinx builds these pages and those of the results: `make docs`, warnings are errors."""

import sys
from pathlib import Path

from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parents[1]))
from core import __version__ as release

project = "pscluster"
author = "the pscluster authors"
project_copyright = "the pscluster authors, Apache License 2.0"

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "docs/index"
include_patterns = ["*.md", "docs/**", "examples/README.md", "experiments/pages/**"]
exclude_patterns = ["docs/_build", ".*", "runs"]
nitpicky = True

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = f"pscluster {release}"
html_show_sourcelink = False
pygments_style = "tango"
pygments_dark_style = "monokai"


def setup(app: Sphinx) -> None:
    """Read pages from the project's folder: links lead from docs/ to the pages beside it."""
    app.srcdir = app.srcdir.parent
