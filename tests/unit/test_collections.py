"""requirements.yml lists what is taken from collections, and Ansible's own client accepts it."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import ansible
import yaml

PROJECT = Path(__file__).resolve().parents[2]
REQUIREMENTS = PROJECT / "requirements.yml"
# Folders whose YAML, templates and Python are run by Ansible.
PLACES = ["library", "module_utils", "plugins", "playbooks", "roles", "molecule", "inventories", "jobs", "templates"]
NAME = r"([a-z][a-z0-9_]*)\.([a-z][a-z0-9_]*)\.[a-z][a-z0-9_.]*"
USES = (
    # A task's module.
    re.compile(rf"^\s*(?:- )?{NAME}:(?:\s|$)", re.MULTILINE),
    # A filter or test of a template, and a lookup.
    re.compile(rf"\|\s*{NAME}"),
    re.compile(rf"\bis\s+(?:not\s+)?{NAME}\b(?!\()"),
    re.compile(rf"\b(?:lookup|query|q)\(\s*['\"]{NAME}['\"]"),
    # A plugin, role or playbook that is named as a value.
    re.compile(
        r"^\s*(?:- )?(?:ansible_)?(?:connection|become_method|shell_type|strategy|plugin|import_playbook|role)"
        rf"\s*[:=]\s*['\"]?{NAME}",
        re.MULTILINE,
    ),
)
IMPORT = re.compile(r"\bansible_collections\.([a-z0-9_]+)\.([a-z0-9_]+)")
# The keyword `collections` of a play, in either form.
KEYWORD = re.compile(r"^\s*(?:- )?collections:\s*(?:\[([^\]]*)\]|((?:\n\s*- [\w.]+)+))", re.MULTILINE)


def used(text, suffix=".yml"):
    """Return the collections that a file's text uses, less those of ansible-core."""
    patterns = (IMPORT,) if suffix == ".py" else USES
    names = {f"{match[1]}.{match[2]}" for pattern in patterns for match in pattern.finditer(text)}
    for match in KEYWORD.finditer(text):
        names |= set(re.findall(r"\w+\.\w+", match[1] or match[2]))
    return {name for name in names if name not in ("ansible.builtin", "ansible.legacy")}


def files():
    below = (path for place in PLACES for path in (PROJECT / place).rglob("*") if path.is_file())
    top = (PROJECT / name for name in ("site.yml", "launch.yml", "ansible.cfg", ".config/molecule/config.yml"))
    return [path for path in (*below, *top) if path.suffix in (".yml", ".yaml", ".j2", ".py", ".cfg", "")]


def listed():
    return {entry["name"] for entry in yaml.safe_load(REQUIREMENTS.read_text())["collections"]}


def test_every_collection_that_is_used_is_listed():
    assert len(files()) > 300
    texts = ((path, path.read_text(errors="replace")) for path in files())
    found = {str(path.relative_to(PROJECT)): used(text, path.suffix) - listed() for path, text in texts}
    assert {path: names for path, names in found.items() if names} == {}


def test_no_short_name_stands_for_a_collection():
    # ansible-core looks some names without a dot up in collections, as if they were its own.
    routing = yaml.safe_load((Path(ansible.__file__).parent / "config/ansible_builtin_runtime.yml").read_text())
    elsewhere = {
        name
        for kind in ("modules", "action", "connection", "filter", "lookup")
        for name, entry in routing["plugin_routing"].get(kind, {}).items()
        if "redirect" in entry and not entry["redirect"].startswith("ansible.builtin.")
    }
    assert "authorized_key" in elsewhere
    own = {path.stem for place in ("library", "plugins") for path in (PROJECT / place).rglob("*.py")}
    found = {}
    for path in files():
        if path.suffix == ".yml" and ("tasks" in path.parts or "playbooks" in path.parts or "molecule" in path.parts):
            for task in tasks(yaml.safe_load(path.read_text())):
                if names := (set(task) & elsewhere) - own:
                    found[str(path.relative_to(PROJECT))] = names
    assert found == {}


def tasks(node):
    """Yield every mapping of a list, at any depth: tasks, plays and blocks."""
    for entry in node if isinstance(node, list) else []:
        if isinstance(entry, dict):
            yield entry
            for value in entry.values():
                yield from tasks(value)


def test_ansible_installs_it_without_a_server(tmp_path):
    command = ["ansible-galaxy", "install", "-r", str(REQUIREMENTS), "-s", "http://127.0.0.1:9"]
    # An empty home, so that nothing which is installed or configured there helps.
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LC_ALL": "C.UTF-8"}
    run = subprocess.run(command, cwd=PROJECT, env=env, capture_output=True, text=True, timeout=240, check=False)
    assert (run.returncode, list(tmp_path.rglob("ansible_collections"))) == (0, []), run.stdout + run.stderr
