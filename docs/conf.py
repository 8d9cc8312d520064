"""How Sphinx builds these pages. Nothing here needs a network."""

import pathlib
import sys

import toktier

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))  # for docs.mathematics

project = "toktier"
author = "The toktier authors"
project_copyright = author
release = version = toktier.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode", "docs.mathematics"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"toktier {version}"

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
html_math_renderer = "mathml"
myst_heading_anchors = 3

autodoc_preserve_defaults = True
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
napoleon_numpy_docstring = False

# A reference that leads nowhere is an error, except into other projects: their indexes are on the network.
nitpicky = True
elsewhere = "|".join([*sys.stdlib_module_names, "np", "npt", "numpy", "tiktoken", "tokenizers"])
nitpick_ignore_regex = [
    ("py:.*", rf"({elsewhere})\..*"),
    # Not public, and not on these pages; the last two are prometheus_client's.
    ("py:.*", r"toktier\.(families|planner|engines\.(reference|admission|special)|patch\.AnyIds).*"),
    ("py:.*", r"toktier\.integrations\.transformers\.Fast|CollectorRegistry|Exported"),
]
