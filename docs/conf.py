"""How Sphinx builds these pages: `make docs`, warnings are errors."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from core import __version__ as release

project = "pscluster"
author = "the pscluster authors"
project_copyright = "the pscluster authors, Apache License 2.0"

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
nitpicky = True

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = f"pscluster {release}"
html_show_sourcelink = False
pygments_style = "tango"
pygments_dark_style = "monokai"
