"""How Sphinx builds these pages: `make docs`, warnings are errors."""

import tomllib
from pathlib import Path

_project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]

project = "pscluster"
author = "the pscluster authors"
project_copyright = "the pscluster authors, Apache License 2.0"
release = _project["version"]

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
