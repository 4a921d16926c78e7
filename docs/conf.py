"""How Sphinx makes the site of this folder and of the docstrings: `make docs`, without any network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pygments.lexers.special import TextLexer

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "Tallystream"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
html_theme = "furo"
html_title = "Tallystream"
html_copy_source = False
smartquotes = False

# The pages are read in the repository as well: links and anchors are as they are there.
myst_heading_anchors = 4

# Docstrings are Google's, their `names` and indented code as in Markdown.
default_role = "code"
napoleon_numpy_docstring = False
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
python_use_unqualified_type_names = True


def mark_code(app: Sphinx, what: str, _name: str, _obj: object, _options: object, lines: list[str]) -> None:
    """Make indented text after plain text and an empty line a code block, before the sections are read."""
    # Of an attribute, the sections' reader would take all before a colon for its type.
    app.config.napoleon_google_docstring = what not in ("attribute", "data", "property")
    for number in range(len(lines) - 1, 0, -1):
        before = lines[number - 2] if number > 1 else ""
        if lines[number].startswith("    ") and not lines[number - 1] and before[:1] not in ("", " "):
            lines[number:number] = [".. code-block:: python", ""]


def setup(app: Sphinx) -> None:
    """Have docstrings prepared before napoleon reads them, and every language of the pages known."""
    app.connect("autodoc-process-docstring", mark_code, priority=400)
    app.add_lexer("flux", TextLexer)  # Pygments does not know InfluxDB's language
