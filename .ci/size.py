#!/usr/bin/env python3
"""Print how large and how entangled the tree is; fail where it has more lines than .ci/size.yml allows."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path, PurePath

import yaml

PROJECT = Path(__file__).resolve().parents[1]
LIMIT = ".ci/size.yml"
# The figures on imports and names are those of the code, without its tests.
CODE = ("module_utils/", "library/", "plugins/", "vars_plugins/")
_SHOWN = 8

Graph = Mapping[str, set[str]]


def by_folder(lines: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return the lines of each top folder, largest first; files of the root are one folder."""
    found: Counter[str] = Counter()
    for path, count in lines.items():
        found[path.split("/")[0] if "/" in path else "."] += count
    return found.most_common()


def files_of_folders(paths: Iterable[str]) -> list[tuple[str, int]]:
    """Return how many files lie directly in each folder, largest first."""
    return Counter(str(PurePath(path).parent) for path in paths).most_common()


def imports(path: str, text: str) -> Iterator[str]:
    """Yield what a file imports: modules and their names; relative ones as `/` and their path below module_utils."""
    package = PurePath(path).parent.parts[1:]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join([*package[: len(package) - node.level + 1], *filter(None, [node.module])])
            base = f"/{base}" if node.level else node.module or ""
            yield from [*([] if node.level else [base]), *(f"{base}.{alias.name}" for alias in node.names)]


def import_graph(texts: Mapping[str, str]) -> Graph:
    """Return by file which files of the project it imports."""
    found: dict[str, set[str]] = {}
    for path, text in texts.items():
        names = [name.replace("ansible.module_utils.", "/", 1) for name in imports(path, text)]
        places = [f"module_utils{name.replace('.', '/')}" for name in names if name.startswith("/")]
        # The last part is a module, or a name that the module or the folder before it defines.
        tried = [(each, f"{each}/__init__", before := each.rpartition("/")[0], f"{before}/__init__") for each in places]
        found[path] = {next((f"{each}.py" for each in some if f"{each}.py" in texts), path) for some in tried} - {path}
    return found


def circles(graph: Graph) -> list[list[str]]:
    """Return the sets of files each of which leads to all others of its set."""
    reached = {file: _reachable(graph, file) for file in graph}
    found = {frozenset(other for other in after if file in reached[other]) for file, after in reached.items()}
    return sorted(sorted(each) for each in found if each)


def _reachable(graph: Graph, file: str) -> set[str]:
    seen: set[str] = set()
    rest = [file]
    while rest:
        new = graph[rest.pop()] - seen
        seen |= new
        rest += new
    return seen


def longest_chain(graph: Graph) -> list[str]:
    """Return the longest chain of imports; it passes a circle through one of its files."""
    circle_of = {file: circle for circle in circles(graph) for file in circle}

    @cache
    def chain(file: str) -> tuple[str, ...]:
        circle = circle_of.get(file, [file])
        after = {other for each in circle for other in graph[each]} - set(circle)
        return (file, *_longest(chain(other) for other in sorted(after)))

    return list(_longest(chain(file) for file in sorted(graph)))


def _longest(chains: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return max(chains, key=len, default=())


def aliases(text: str) -> int:
    """Return how many imports give what they import another name."""
    nodes = (node for node in ast.walk(ast.parse(text)) if isinstance(node, (ast.Import, ast.ImportFrom)))
    return sum(alias.asname not in (None, alias.name) for node in nodes for alias in node.names)


def long_parts(path: str, text: str) -> Iterator[str]:
    """Yield the classes of 250 lines and more, and the functions of 80, with their lines."""
    for node in ast.walk(ast.parse(text)):
        limit = {ast.ClassDef: 250, ast.FunctionDef: 80, ast.AsyncFunctionDef: 80}.get(type(node))
        if limit and node.end_lineno - node.lineno >= limit:
            yield f"{_stem(path)}.{node.name} {node.end_lineno - node.lineno + 1}"


def shared_names(paths: Iterable[str]) -> dict[str, int]:
    """Return the names that several files have, with how many."""
    found: defaultdict[str, int] = defaultdict(int)
    for path in paths:
        found[PurePath(path).name] += 1
    return {name: count for name, count in sorted(found.items()) if count > 1 and name != "__init__.py"}


def too_large(found: int, allowed: int) -> str:
    """Return the finding for a tree that is too large, "" for others."""
    if found <= allowed:
        return ""
    action = f"delete what nothing needs, or raise the number in {LIMIT} and say why in the commit"
    return f"found {found:,} tracked lines, expected at most {allowed:,}: {action}"


def figures(lines: Mapping[str, int], texts: Mapping[str, str]) -> Iterator[str]:
    """Yield the figures, a line each."""
    total = sum(lines.values())
    yield f"tracked lines: {total:,}: {_listed(by_folder(lines))}"
    yield f"files in the largest folders: {_listed(files_of_folders(lines))}"
    graph = import_graph(texts)
    yield f"circles of files: {'; '.join('/'.join(map(_stem, circle)) for circle in circles(graph)) or 'none'}"
    chain = longest_chain(graph)
    yield f"longest import chain: {len(chain)} files: {' '.join(map(_stem, chain))}"
    yield f"aliases: {sum(map(aliases, texts.values()))}"
    long = [part for path, text in texts.items() for part in long_parts(path, text)]
    yield f"long classes and functions: {', '.join(long) or 'none'}"
    # A module and the action of its name belong together.
    shared = shared_names(path for path in texts if path.startswith("module_utils/"))
    yield f"names that files share: {len(shared)} of {sum(shared.values())} files in module_utils"


def _stem(path: str) -> str:
    return PurePath(path.replace("/__init__.py", "")).stem


def _listed(found: list[tuple[str, int]]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in found[:_SHOWN])


def main() -> int:
    """Run the check."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=PROJECT, capture_output=True, text=True, check=True)
    files = [path for path in listed.stdout.split("\0") if (PROJECT / path).is_file()]
    lines = {path: (PROJECT / path).read_bytes().count(b"\n") for path in files if not (PROJECT / path).is_symlink()}
    code = [path for path in lines if path.startswith(CODE) and path.endswith(".py")]
    for line in figures(lines, {path: (PROJECT / path).read_text(encoding="utf-8") for path in code}):
        print(line)
    finding = too_large(sum(lines.values()), yaml.safe_load((PROJECT / LIMIT).read_text(encoding="utf-8"))["lines"])
    if finding:
        print(finding, file=sys.stderr)
    return 1 if finding else 0


if __name__ == "__main__":
    sys.exit(main())
