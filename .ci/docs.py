#!/usr/bin/env python
# SPDX-License-Identifier: Apache-2.0
"""Build the docs as a site in `.cache/docs`: `make docs` calls this.

Beside each page lies its Markdown, and `llms.txt` lists the pages for programs (llmstxt.org).

The argument_specs of roles and playbooks, and the documentation of modules and filters, become
the pages of docs/reference, which are not tracked. A warning of Sphinx, such as a link that leads nowhere, is an error.

`docs.py --translated PAGE` notes in a Chinese page which English text it translates (docs/adr/0008-chinese-pages.md).
"""

from __future__ import annotations

import hashlib
import inspect
import json
import posixpath
import re
import runpy
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

PROJECT = Path(__file__).resolve().parents[1]
SITE = PROJECT / ".cache" / "docs"
REFERENCE = PROJECT / "docs" / "reference"
EVERY_S = 5.0
BEHIND = "> 本节译文落后于英文版。"
# A line of a Chinese page: the English section, and the digest of its text when it was translated.
MARK = re.compile(rf"^<!-- translates: (.+?)(?: \| ([0-9a-f]{{12}}))? -->$(?P<behind>\n+{BEHIND}$)?", re.MULTILINE)


def described(*argv: str) -> dict[str, Any]:
    """Return what ansible-doc knows of all plugins."""
    command = ["ansible-doc", "--metadata-dump", "--no-fail-on-errors", *argv]
    run = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True)
    plugins: dict[str, Any] = json.loads(run.stdout)["all"]
    return plugins


def prose(text: str | list[str]) -> str:
    """Turn markup of Ansible's documentation into Markdown, in one paragraph."""
    text = " ".join(text) if isinstance(text, list) else text
    text = re.sub(r"\b[BCEIMOPV]\(((?:[^()\\]|\\.)*)\)", lambda match: f"`{match[1]}`".replace("\\)", ")"), text)
    text = re.sub(r"\bL\(([^,)]*), *([^)]*)\)", r"[\1](\2)", text)
    return re.sub(r"\s+", " ", text).replace("<", "\\<").strip()


def cell(text: str) -> str:
    """Return a text for a cell of a table."""
    return text.replace("|", "\\|")


def options(entries: Mapping[str, Any]) -> Iterator[str]:
    """Yield a table of options."""
    yield from ("| option | type | default | meaning |", "|---|---|---|---|")
    for name, option in entries.items():
        kind = option.get("type", "str") + (f" of {option['elements']}" if "elements" in option else "")
        default = "required" if option.get("required") else ""
        if option.get("default") not in (None, ""):
            default = f"`{yaml.safe_dump(option['default'], default_flow_style=True, width=10_000).split(chr(10))[0]}`"
        choices = ", ".join(f"`{each}`" for each in option.get("choices") or ())
        meaning = prose(option.get("description", "")) + (f" One of {choices}." if choices else "")
        yield f"| `{name}` | {kind} | {cell(default)} | {cell(meaning)} |"
    yield ""


def role_pages(roles: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the page of each role: its entry points with their variables."""
    for name, role in sorted(roles.items()):
        lines = [
            f"# Role {name}: variables",
            f"After this page you know the variables of the role {name}.",
            "",
            f"[What the role does](../../roles/{name}/README.md).",
            "",
        ]
        for entry, spec in role["entry_points"].items():
            lines += [f"## {entry}", "", prose(spec.get("description") or spec.get("short_description", "")), ""]
            lines += options(spec["options"]) if spec.get("options") else []
        yield f"role_{name}", "\n".join(lines)


def module_page(modules: Mapping[str, Any]) -> str:
    """Return the page of all modules of the project."""
    lines = ["# Modules", "After this page you know the options and results of each module.", ""]
    for name, plugin in sorted(modules.items()):
        if not name.startswith("ansible.legacy."):
            continue
        doc, returned = plugin["doc"], plugin.get("return") or {}
        lines += [f"## {name.rpartition('.')[2]}", "", f"{prose(doc['short_description'])}.", ""]
        lines += [prose(doc["description"]), ""] if doc.get("description") else []
        lines += options(doc["options"]) if doc.get("options") else []
        lines += ["```yaml", plugin["examples"].strip("\n"), "```", ""] if plugin.get("examples") else []
        if returned:
            lines += ["| returned | type | meaning |", "|---|---|---|"]
            lines += [
                f"| `{key}` | {value.get('type', '')} | {cell(prose(value.get('description', '')))} |"
                for key, value in returned.items()
            ]
            lines.append("")
    return "\n".join(lines)


def filter_page() -> str:
    """Return the page of all filters, with the docstrings of their functions."""
    lines = ["# Filters", "After this page you know what each filter takes and returns.", ""]
    functions: dict[str, Any] = {}
    for file in sorted((PROJECT / "plugins" / "filter").glob("*.py")):
        functions |= runpy.run_path(str(file))["FilterModule"]().filters()
    for name, function in sorted(functions.items()):
        arguments = str(inspect.signature(function)).partition(" -> ")[0]
        lines += [f"## {name}", "", f"`{name}{arguments}`", "", inspect.getdoc(function) or "", ""]
    return "\n".join(lines)


def playbook_page() -> str:
    """Return the page of the variables that every playbook takes."""
    specs = yaml.safe_load((PROJECT / "playbooks" / "meta" / "argument_specs.yml").read_text())["argument_specs"]
    lines = ["# Variables of playbooks", "After this page you know the variables that each playbook takes.", ""]
    for name, spec in specs.items():
        lines += [f"## {name}", "", prose(spec.get("description") or spec["short_description"]), ""]
        lines += options(spec["options"])
    return "\n".join(lines)


def write_reference() -> None:
    """Write the pages of docs/reference."""
    plugins = described()
    pages = dict(role_pages(plugins["role"]))
    roles = "\n".join(pages)
    pages["roles"] = (
        "# Roles: variables\nAfter this page you can find the variables of each role.\n\n"
        f"```{{toctree}}\n:maxdepth: 1\n{roles}\n```\n"
    )
    pages["playbooks"] = playbook_page()
    pages["modules"] = module_page(plugins["module"])
    pages["filters"] = filter_page()
    schema = (PROJECT / "docs" / "report.schema.json").read_text()
    pages["report-schema"] = (
        "# Schema of report.json\nAfter this page you can check the report of a verification by a program.\n\n"
        f"```json\n{schema}```\n"
    )
    REFERENCE.mkdir(exist_ok=True)
    for old in REFERENCE.glob("*.md"):
        old.unlink()
    for name, text in pages.items():
        (REFERENCE / f"{name}.md").write_text(text)


def groups(index: str) -> dict[str, list[str]]:
    """Return the pages of each toctree of the first page, without `.md`, by its caption."""
    toctrees = re.findall(r"```\{toctree\}\n:caption: (.+)\n:hidden:\n([^`]+)```", index)
    return {caption: pages.split() for caption, pages in toctrees}


def opening(page: str) -> tuple[str, str]:
    """Return the title of a page, and its first sentence without links."""
    title, _, text = page.removeprefix("# ").partition("\n")
    paragraph = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL).strip().partition("\n\n")[0]
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", paragraph)
    return title, re.split(r"(?<=\.)\s|(?<=。)", text)[0].replace("\n", " ")


def overview(index: str, read: Callable[[str], str]) -> str:
    """Return llms.txt: the pages of the sidebar with their first sentences; `read` returns the text of a page."""
    summary = index.split("\n\n")[1]
    lines = ["# trainyard", "", f"> {summary}"]
    for caption, pages in groups(index).items():
        lines += ["", f"## {caption}", ""]
        for path in (posixpath.normpath(f"docs/{page}.md") for page in pages):
            title, sentence = opening(read(path))
            lines.append(f"- [{title}]({path}): {sentence}")
    return "\n".join(lines) + "\n"


def write_texts() -> None:
    """Put the Markdown of each page beside it, and llms.txt into the site."""
    for page in SITE.rglob("*.html"):
        source = (PROJECT / page.relative_to(SITE)).with_suffix(".md")
        if source.is_file():
            shutil.copyfile(source, page.with_suffix(".md"))
    index = (PROJECT / "docs" / "index.md").read_text()
    (SITE / "llms.txt").write_text(overview(index, lambda path: (PROJECT / path).read_text()))


def translations() -> list[str]:
    """Return the Chinese pages that translate an English one, by their paths in the project."""
    pages = [*PROJECT.glob("README.zh-CN.md"), *sorted((PROJECT / "docs" / "zh").glob("*.md"))]
    names = [str(page.relative_to(PROJECT)) for page in pages]
    return [name for name in names if (PROJECT / original(name)).is_file()]


def original(page: str) -> str:
    """Return the English page that a Chinese one translates, if there is one."""
    return page.replace(".zh-CN.md", ".md").replace("docs/zh/", "docs/")


def sections(page: str) -> dict[str, str]:
    """Return the digest of each section of a page, by its heading of the first or second level."""
    texts: dict[str, list[str]] = {}
    heading, code = "", False
    for line in re.sub(r"```\{toctree\}.*?```", "", page, flags=re.DOTALL).splitlines():
        code ^= line.lstrip().startswith("```")
        if not code and line.startswith(("# ", "## ")):
            heading = line.partition(" ")[2]
        texts.setdefault(heading, []).extend(line.split())
    return {heading: hashlib.sha256(" ".join(words).encode()).hexdigest()[:12] for heading, words in texts.items()}


def outdated(page: str, chinese: str, english: str) -> Iterator[str]:
    """Yield what a Chinese page says wrongly of the English sections that it translates."""
    digests, marks, source = sections(english), list(MARK.finditer(chinese)), original(page)
    for heading in [each for each in digests if each not in {mark[1] for mark in marks}]:
        yield (
            f"{page}: nothing translates the section {heading!r} of {source}: translate it, or link to it, "
            f"with `<!-- translates: {heading} -->` below the heading, then call `.ci/docs.py --translated {page}`"
        )
    for mark in marks:
        if mark[1] not in digests:
            yield f"{page}: {source} has no section {mark[1]!r}: remove the line {mark[0]!r} with its text"
        elif mark["behind"] and mark[2] == digests[mark[1]]:
            yield f"{page}: the section {mark[1]!r} of {source} has not changed: remove the line {BEHIND!r} here"
        elif not mark["behind"] and mark[2] != digests[mark[1]]:
            yield (
                f"{page}: the section {mark[1]!r} of {source} has changed, or was never noted: translate the change, "
                f"then call `.ci/docs.py --translated {page}`; or put the line {BEHIND!r} below {mark[0]!r}"
            )


def renewed(chinese: str, english: str) -> str:
    """Return a Chinese page with the digests of the English sections now, except where it says that it is behind."""
    digests = sections(english)

    def line(mark: re.Match[str]) -> str:
        keep = mark["behind"] or mark[1] not in digests
        return mark[0] if keep else f"<!-- translates: {mark[1]} | {digests[mark[1]]} -->"

    return MARK.sub(line, chinese)


def note_translated(page: Path) -> int:
    """Write the digests of the English sections into a Chinese page; print and count what is still wrong."""
    name = str(page.resolve().relative_to(PROJECT))
    if name not in translations():
        print(f"found {name}, expected one of {', '.join(translations())}: name a page that translates an English one")
        return 1
    english = (PROJECT / original(name)).read_text(encoding="utf-8")
    text = renewed(page.read_text(encoding="utf-8"), english)
    page.write_text(text, encoding="utf-8")
    problems = list(outdated(name, text, english))
    for problem in problems:
        print(problem)
    return len(problems)


def show_progress(last: list[str]) -> None:
    """Print what is done now, the last element of a list, every few seconds."""
    begun = time.monotonic()
    while True:
        time.sleep(EVERY_S)
        print(f"  {time.monotonic() - begun:.0f} s  {last[-1]}", flush=True)


def main() -> int:
    """Write the reference, build the site, and add the texts for programs."""
    done = ["reading the documentation of roles and modules"]
    threading.Thread(target=show_progress, args=(done,), daemon=True).start()
    write_reference()
    command = ["sphinx-build", "--no-color", "--fail-on-warning", "--keep-going", "--nitpicky", "--jobs=auto"]
    argv = [*command, f"--conf-dir={PROJECT / 'docs'}", f"--doctree-dir={SITE}.cache", str(PROJECT), str(SITE)]
    # Sphinx ends the lines of pages with \r.
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        texts = (line.replace("\x1b[2K", "").strip() for line in process.stdout or ())
        done += filter(None, texts)
    if process.returncode:
        return process.returncode
    write_texts()
    print(f"docs: open {SITE.relative_to(PROJECT)}/docs/index.html")
    return 0


if __name__ == "__main__":
    sys.exit(bool(note_translated(Path(sys.argv[2]))) if sys.argv[1:2] == ["--translated"] else main())
