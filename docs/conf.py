# SPDX-License-Identifier: Apache-2.0
"""Settings of Sphinx for the docs as a site (`make docs`).

The source folder is the whole project, so links between pages of docs/, roles/ and benchmarks/ work everywhere.
"""

from __future__ import annotations

from pathlib import Path

from pygments.lexers.special import TextLexer

project = "trainyard"
html_title = "trainyard"
html_show_copyright = False
html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_search_scorer = str(Path(__file__).parent / "static" / "scorer.js")
html_copy_source = False
html_show_sourcelink = False
extensions = ["myst_parser", "sphinx_copybutton"]
root_doc = "docs/index"
include_patterns = ["*.md", "*/README.md", "docs/**.md", "roles/**README.md", "t*/**README.md"]
exclude_patterns = ["README.md"]
# Pages that other pages link to, but that no table of contents lists.
suppress_warnings = ["toc.not_included"]
myst_heading_anchors = 4
copybutton_prompt_text = "$ "


def setup(app: object) -> None:
    """Show diagrams as their text: the site loads no program of another site."""
    app.add_lexer("mermaid", TextLexer)  # type: ignore[attr-defined]
