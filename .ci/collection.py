#!/usr/bin/env python
# SPDX-License-Identifier: Apache-2.0
"""Build the collection trainyard.cluster from the checkout, and print the archive's path: `make collection`.

A checkout needs no names of collections; in the collection each import, module, filter and fragment of documentation
has the full one. Only files that git knows are taken.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tomllib
import yaml

PROJECT = Path(__file__).resolve().parents[1]
NAME = "trainyard.cluster"
TAKEN = (
    "library", "module_utils", "plugins", "vars_plugins", "playbooks", "roles", "templates", "jobs", "training", "docs",
    "requirements", "molecule/default/packages", "molecule/default/image/packages", "site.yml", "launch.yml",
    "pyproject.toml", "requirements.yml", "README.md", "README.zh-CN.md", "CHANGELOG.md", "LICENSE", "SECURITY.md",
)  # fmt: skip
# Keys of a task or play whose value has further tasks.
_NESTED = ("tasks", "pre_tasks", "post_tasks", "handlers", "block", "rescue", "always")
# What `ansible-test sanity` finds, and stays: programs, which it knows as modules only, addresses that Ansible's own
# function would open in the same way, and an action for commands that reports print.
_SANITY = {
    "plugins/action/clock_reading.py": "action-plugin-docs",
    "plugins/module_utils/trainyard/job/run/decide/restart_rules.py": "replace-urlopen",
    "plugins/module_utils/trainyard_controller/bundle/bundling.py": "replace-urlopen",
    "plugins/module_utils/trainyard_controller/bundle/deb_locking.py": "replace-urlopen",
    "plugins/module_utils/trainyard_node/software/addresses.py": "replace-urlopen",
}
# Lines by which Python finds the modules of a checkout.
_PATH = re.compile(r"^(?:.*ansible\.module_utils\.__path__.*|import ansible\.module_utils)\n", re.MULTILINE)


def files() -> list[str]:
    """Return the paths of all files that belong to the collection."""
    argv = ["git", "ls-files", "-z", "--", *TAKEN]
    return subprocess.run(argv, cwd=PROJECT, capture_output=True, text=True, check=True).stdout.rstrip("\0").split("\0")


def place(path: str) -> str:
    """Return where a file of the checkout lies in the collection."""
    first, _, rest = path.partition("/")
    folder = {"library": "plugins/modules", "module_utils": "plugins/module_utils"}.get(first)
    if folder:
        return f"{folder}/{rest}"
    return f"playbooks/{path}" if path in ("site.yml", "launch.yml") else path


def modules() -> set[str]:
    """Return the names of all modules and action plugins."""
    return {path.stem for folder in ("library", "plugins/action") for path in (PROJECT / folder).glob("*.py")}


def fragments() -> set[str]:
    """Return the names of all fragments of documentation."""
    return {path.stem for path in (PROJECT / "plugins/doc_fragments").glob("*.py")}


def filters() -> set[str]:
    """Return the names of all filters."""
    code = "import runpy; print(*runpy.run_path('plugins/filter/trainyard.py')['FilterModule']().filters())"
    argv = [sys.executable, "-c", code]
    return set(subprocess.run(argv, cwd=PROJECT, capture_output=True, text=True, check=True).stdout.split())


def with_imports(text: str) -> str:
    """Import from the collection instead of from Ansible's own package."""
    own = f"ansible_collections.{NAME}.plugins.module_utils."
    return re.sub(r"\bansible\.module_utils\.(?=trainyard)", own, _PATH.sub("", text))


def with_documentation(text: str, names: set[str], shared: set[str]) -> str:
    """Give modules and fragments of the documentation their full names."""
    listed, fragment = "|".join(sorted(names)), re.compile(rf"\b({'|'.join(sorted(shared))})\b")
    text = re.sub(rf"\bM\(({listed})\)", rf"M({NAME}.\1)", text)
    # A module in an example.
    text = re.sub(rf"^(\s*- name: [^\n]*\n\s+)({listed}):", rf"\1{NAME}.\2:", text, flags=re.MULTILINE)
    named = re.compile(r"^extends_documentation_fragment:[^\n]*(?:\n\s+- [\w.]+)*", re.MULTILINE)
    return named.sub(lambda match: fragment.sub(rf"{NAME}.\1", match[0]), text)


def tasks(node: Any) -> Iterator[yaml.MappingNode]:
    """Yield the mappings of a list of plays or tasks, at any depth."""
    for entry in node.value if isinstance(node, yaml.SequenceNode) else ():
        if isinstance(entry, yaml.MappingNode):
            yield entry
            for key, value in entry.value:
                if key.value in _NESTED:
                    yield from tasks(value)


def with_modules(text: str, names: set[str]) -> str:
    """Give the modules of tasks their full names."""
    lines = text.splitlines(keepends=True)
    for task in tasks(yaml.compose(text, Loader=yaml.SafeLoader)):
        for key, _ in task.value:
            if key.value in names:
                number, column = key.start_mark.line, key.start_mark.column
                lines[number] = f"{lines[number][:column]}{NAME}.{lines[number][column:]}"
    return "".join(lines)


def with_filters(text: str, names: set[str]) -> str:
    """Give filters their full names, also those that `map` and its like call."""
    listed = "|".join(sorted(names))
    # A sign that begins a block of text, `key: |`, has a colon or a hyphen before it.
    text = re.sub(rf"([^\s:-]\s*\|\s*)({listed})\b(?!\.)", rf"\1{NAME}.\2", text)
    return re.sub(rf"(\bmap\(\s*['\"])({listed})(?=['\"])", rf"\1{NAME}.\2", text)


def rewritten(path: str, text: str, names: dict[str, set[str]]) -> str:
    """Return the text of a file as it is in the collection."""
    first = path.split("/")[0]
    if path.endswith(".py") and first in ("library", "module_utils", "plugins", "vars_plugins"):
        text = with_imports(text)
        if first == "library" or path.startswith("plugins/doc_fragments"):
            text = with_documentation(text, names["modules"], names["fragments"])
    elif first in ("roles", "playbooks", "site.yml", "launch.yml") and path.endswith((".yml", ".j2")):
        text = with_filters(text, names["filters"])
        if path.endswith(".yml") and "/meta/" not in path:
            text = with_modules(text, names["modules"])
        if first == "site.yml":
            text = text.replace("import_playbook: playbooks/", "import_playbook: ")
    return text


def galaxy() -> dict[str, Any]:
    """Return the collection's metadata."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    namespace, _, name = NAME.partition(".")
    return {
        "namespace": namespace,
        "name": name,
        "version": project["version"],
        "readme": "README.md",
        "authors": ["the trainyard maintainers"],
        "description": project["description"],
        "license": [project["license"]],
        "tags": ["linux", "cloud", "tools", "gpu", "mpi", "slurm", "pytorch"],
        "dependencies": {},
    }


def write(folder: Path) -> None:
    """Write the files of the collection into an empty folder."""
    names = {"modules": modules(), "fragments": fragments(), "filters": filters()}
    for path in files():
        source, target = PROJECT / path, folder / place(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink():
            target.symlink_to(source.readlink())
            continue
        content = source.read_bytes()
        if path.endswith((".py", ".yml", ".j2")):
            content = rewritten(path, content.decode(), names).encode()
        target.write_bytes(content)
        target.chmod(source.stat().st_mode & 0o777)
    cores = re.findall(r"ansible-core==(\d+\.\d+)", (PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    (folder / "meta").mkdir()
    (folder / "meta/runtime.yml").write_text(f"---\nrequires_ansible: '>={cores[0]}.0'\n")
    (folder / "galaxy.yml").write_text(yaml.safe_dump(galaxy(), sort_keys=False))
    (folder / "tests/sanity").mkdir(parents=True)
    ignored = [*programs(folder), *(f"{path} {test}" for path, test in _SANITY.items())]
    for core in cores:
        (folder / f"tests/sanity/ignore-{core}.txt").write_text("".join(f"{line}\n" for line in sorted(ignored)))


def programs(folder: Path) -> Iterator[str]:
    """Yield a line for each program that is no module, as `ansible-test` takes it; it knows two interpreters."""
    for path in folder.rglob("*"):
        relative = str(path.relative_to(folder))
        if not path.is_file() or relative.startswith("plugins/"):
            continue
        first = path.read_bytes().partition(b"\n")[0]
        if first.startswith(b"#!") and first not in (b"#!/bin/sh", b"#!/usr/bin/env bash"):
            yield f"{relative} shebang"


def main() -> None:
    """Build the archive in the folder of the only argument, or in .cache/collection."""
    work = Path(sys.argv[1]) if sys.argv[1:] else PROJECT / ".cache/collection"
    shutil.rmtree(work, ignore_errors=True)
    write(work / "source")
    argv = ["ansible-galaxy", "collection", "build", "--output-path", str(work), str(work / "source")]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    print(*work.glob("*.tar.gz"))


if __name__ == "__main__":
    main()
