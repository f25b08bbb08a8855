"""Unfold a captured machine (tests/fixtures/nodes/NAME.tree) into a folder; the format is in the README there.

By itself it folds a folder, such as the captures of `make test-gpu`, and prints it: captured_tree.py FOLDER
"""

from __future__ import annotations

import sys
from functools import partial
from itertools import takewhile
from operator import ne
from pathlib import Path

NODES = Path(__file__).resolve().parents[1] / "fixtures" / "nodes"


def unfold(name: str, folder: Path, trees: Path = NODES) -> Path:
    """Write the captured machine below folder and return it."""
    lines = iter((trees / f"{name}.tree").read_text(encoding="utf-8").splitlines())
    for line in lines:
        if not line or line.startswith("#"):
            continue
        braced, mark, value = _parts(line)
        content = value + "\n"
        if mark == " <<":
            content = "".join(f"{inner}\n" for inner in takewhile(partial(ne, value), lines))
        for path in _expanded(braced):
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            if mark == "/":
                target.mkdir(parents=True, exist_ok=True)
            elif mark == " -> ":
                target.symlink_to(value)
            else:
                target.write_text(content, encoding="utf-8")
    return folder


def _expanded(path: str) -> list[str]:
    """Expand one list in braces, as a shell does."""
    start, braced, rest = path.partition("{")
    names, _, end = rest.partition("}")
    return [f"{start}{name}{end}" for name in names.split(",")] if braced else [path]


def _parts(line: str) -> tuple[str, str, str]:
    # PCI addresses hold colons, so only a colon with a space after it separates.
    for mark in (" -> ", " <<", ": "):
        path, found, value = line.partition(mark)
        if found and " " not in path:
            return path, mark, value
    if line.endswith("/") and " " not in line:
        return line[:-1], "/", ""
    raise ValueError(f"no such line in the format: {line}")


def fold(folder: Path) -> str:
    """Return a folder in the format: files, links, and folders with nothing in them."""
    lines = []
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if " " in name:
            raise ValueError(f"{name} has a space in it, which the format does not know: rename it")
        if path.is_symlink():
            lines.append(f"{name} -> {path.readlink()}\n")
        elif path.is_dir():
            lines += [f"{name}/\n"] if not any(path.iterdir()) else []
        else:
            lines.append(_folded(name, path.read_text(encoding="utf-8")))
    return "".join(lines)


def _folded(name: str, content: str) -> str:
    text = content.removesuffix("\n")
    if text and "\n" not in text:
        return f"{name}: {text}\n"
    mark = "EOF"
    while mark in text.splitlines():
        mark += "_"
    return f"{name} <<{mark}\n{content}{'' if content.endswith(chr(10)) or not content else chr(10)}{mark}\n"


if __name__ == "__main__":
    sys.stdout.write(fold(Path(sys.argv[1])))
