# SPDX-License-Identifier: Apache-2.0
"""Settings of Sphinx for the docs as a site (`make docs`).

The source folder is the whole project, so links between pages of docs/, roles/ and benchmarks/ work everywhere.
"""

from __future__ import annotations

import re
from pathlib import Path

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx
from sphinx.search.en import SearchEnglish

PROJECT = Path(__file__).resolve().parents[1]
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
# Sphinx follows links, and those of a test below `.cache` may lead back here: without `.*` it walks for hours.
exclude_patterns = [".*", "README.md", "README.zh-CN.md"]
# Pages that other pages link to, but that no table of contents lists.
suppress_warnings = ["toc.not_included"]
myst_heading_anchors = 4
copybutton_prompt_text = "$ "


def switch_language(_app: object, page: str, source: list[str]) -> None:
    """Put a link to the other language below the title of a page that has both."""
    folder, name = Path(page).parent, f"{Path(page).name}.md"
    other = {"docs": f"zh/{name}", "docs/zh": f"../{name}"}.get(str(folder), "")
    if other and (PROJECT / folder / other).is_file():
        title, text = source[0].split("\n", 1)
        source[0] = f"{title}\n[{'中文' if folder.name == 'docs' else 'English'}]({other})\n\n{text}"


def name_language(_app: object, page: str, _template: str, context: dict[str, object], _tree: object) -> None:
    """Let a Chinese page say that it is Chinese."""
    context["language"] = "zh-CN" if page.startswith("docs/zh/") else "en"


class Words(SearchEnglish):
    """Words of English and Chinese. Each two neighbors are a word of Chinese: it has no spaces (static/scorer.js)."""

    def split(self, text: str) -> list[str]:
        """Return the words of a text."""
        return re.findall(r"(?=([\u3400-\u9fff]{2}))", text) + re.findall(r"[^\W\u3400-\u9fff]+", text)


def setup(app: Sphinx) -> None:
    """Show diagrams as their text: the site loads no program of another site. Add the languages."""
    app.add_lexer("mermaid", TextLexer)
    app.add_search_language(Words)
    app.connect("source-read", switch_language)
    app.connect("html-page-context", name_language)
