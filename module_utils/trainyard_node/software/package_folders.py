# SPDX-License-Identifier: Apache-2.0
"""Find where a virtual environment's Python finds packages, from its files alone: no Python is started.

Where root reads an environment, it may be another user's: its `.pth` files are read within bounds, and the code
in them never runs (site.addpackage of Python would run it).
"""

from __future__ import annotations

import posixpath
import re

from ..machine.tree import Tree

# Upper bounds for one file in bytes, and for the folders of one environment.
MAX_BYTES, MAX_FOLDERS = 64 << 10, 64
# A `.pth` file that adds a folder with its `.pth` files does it in this form; a plain line adds the folder alone.
_ADDSITEDIR = re.compile(r"""import\s.*\bsite\.addsitedir\(\s*r?(["'])(?P<folder>[^"'\\]+)\1\s*\)""")


def settings(tree: Tree, venv: str) -> dict[str, str]:
    """Return the settings of pyvenv.cfg by lower-case name."""
    lines = (tree.text(f"{venv}/pyvenv.cfg", MAX_BYTES) or "").splitlines()
    return {key.strip().lower(): value.strip() for key, _, value in (line.partition("=") for line in lines)}


def short_version(config: dict[str, str]) -> str:
    """Return the version of an environment's Python as far as it names folders: 3.11; "" where it is unknown."""
    return ".".join(config.get("version", config.get("version_info", "")).split(".")[:2])


def folders(tree: Tree, venv: str) -> list[str]:
    """Return the folders in which an environment's Python looks for packages, in its order."""
    found: list[str] = []
    for library in ("lib", "lib64"):
        for python in tree.names(f"{venv}/{library}"):
            if python.startswith("python"):
                _add(tree, f"{venv}/{library}/{python}/site-packages", found)
    config = settings(tree, venv)
    if config.get("include-system-site-packages", "").lower() == "true":
        for folder in _of_system(config):
            _add(tree, folder, found)
    return found


def _of_system(config: dict[str, str]) -> list[str]:
    """Return the package folders of the Python from which an environment was made; `home` is where that Python lies."""
    short = short_version(config)
    prefix = posixpath.dirname(config.get("home", "").rstrip("/"))
    if prefix not in ("", "/", "/usr"):
        return [f"{prefix}/{library}/python{short}/site-packages" for library in ("lib", "lib64")]
    debian = [f"/usr/local/lib/python{short}/dist-packages", "/usr/lib/python3/dist-packages"]
    return debian + [f"{prefix}/python{short}/site-packages" for prefix in ("/usr/local/lib", "/usr/lib", "/usr/lib64")]


def _add(tree: Tree, folder: str, found: list[str]) -> None:
    """Add a folder and those that its `.pth` files name, as site.addsitedir does."""
    if folder in found or len(found) >= MAX_FOLDERS or not tree.exists(folder):
        return
    found.append(folder)
    for name in tree.names(folder):
        if not name.endswith(".pth") or name.startswith("."):
            continue
        for line in (tree.text(f"{folder}/{name}", MAX_BYTES) or "").splitlines():
            code = line.startswith(("import ", "import\t"))
            layer = _ADDSITEDIR.match(line) if code else None
            if layer:
                _add(tree, posixpath.normpath(posixpath.join(folder, layer["folder"])), found)
            elif not code and line.strip() and not line.startswith("#"):
                named = posixpath.normpath(posixpath.join(folder, line.rstrip()))
                if named not in found and len(found) < MAX_FOLDERS and tree.exists(named):
                    found.append(named)
