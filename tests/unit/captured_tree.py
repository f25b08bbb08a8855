"""Unfold a captured machine (tests/fixtures/nodes/NAME.tree) into a folder; the format is in the README there."""

from __future__ import annotations

from pathlib import Path

NODES = Path(__file__).resolve().parents[1] / "fixtures" / "nodes"


def unfold(name: str, folder: Path, trees: Path = NODES) -> Path:
    """Write the captured machine below folder and return it."""
    lines = iter((trees / f"{name}.tree").read_text(encoding="utf-8").splitlines())
    for line in lines:
        if not line or line.startswith("#"):
            continue
        path, mark, value = _parts(line)
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if mark == "/":
            target.mkdir(parents=True, exist_ok=True)
        elif mark == " -> ":
            target.symlink_to(value)
        elif mark == " <<":
            content = []
            for inner in lines:
                if inner == value:
                    break
                content.append(inner + "\n")
            else:
                raise ValueError(f"{name}.tree: {path} has no end mark {value}")
            target.write_text("".join(content), encoding="utf-8")
        else:
            target.write_text(value + "\n", encoding="utf-8")
    return folder


def _parts(line: str) -> tuple[str, str, str]:
    # PCI addresses hold colons, so only a colon with a space after it separates.
    for mark in (" -> ", " <<", ": "):
        path, found, value = line.partition(mark)
        if found and " " not in path:
            return path, mark, value
    if line.endswith("/") and " " not in line:
        return line[:-1], "/", ""
    raise ValueError(f"no such line in the format: {line}")
