"""Configure Sphinx. To build the site, run `python -m sphinx -W -c docs . build/site`.

The source folder is the whole checkout, so that relative links work on the site and in the checkout.
"""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import pages

from memes.version import __version__

pages.make(Path(__file__).parent / "made")

root_doc = "docs/index"
include_patterns = [
    "docs/**", "results/README.md", "results/paper/*.md", "results/paper/*/*.md", "benchmarks/README.md",
    "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md",
]  # fmt: skip

project = "memes"
release = __version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]

html_theme = "furo"
html_show_copyright = False
html_title = f"memes {__version__}"

myst_heading_anchors = 4
# The build executes the tutorials and fails if a cell fails.
nb_execution_mode = "cache"
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_merge_streams = True
# Two classes are named State, so Sphinx would warn that it cannot link this name in signatures.
suppress_warnings = ["toc.not_included", "ref.python"]

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
default_role = "code"
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
napoleon_attr_annotations = False  # otherwise, the asterisk in a shape such as "*s L" is read as markup
maximum_signature_line_length = 80


def tidy(app, what, name, thing, options, lines):
    """Mark the first indented block of a module docstring as code. Remove automatic field docstrings."""
    if lines and lines[0].startswith("Alias for field number"):
        lines.clear()
    if what == "module":
        text = re.sub(r"\n\n(?=    )(?<!\n    )", "\n\n::\n\n", "\n".join(lines), count=1)
        lines[:] = text.splitlines()


def hide_tables(app, doctree):
    """Hide the pages written by `memes compare` from the search function of the site."""
    if re.fullmatch(r"results/paper/\w+/comparison", app.env.docname):
        app.env.metadata[app.env.docname]["nosearch"] = True


def setup(app):
    """Register `tidy` and `hide_tables` as event handlers of Sphinx."""
    app.connect("autodoc-process-docstring", tidy)
    app.connect("doctree-read", hide_tables)
