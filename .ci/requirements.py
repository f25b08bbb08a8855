#!/usr/bin/env python
# SPDX-License-Identifier: Apache-2.0
"""Pin with hashes what `.venv` gets and what the roles install on nodes: `make requirements` calls this.

uv writes the hashes of every file that an index has. Kept here are those of wheels for Linux with glibc on x86_64 and
aarch64, and of what runs everywhere. The files for `.venv` also have wheels for macOS, and the source archives for
`make ONLY_BINARY=`.

The hashes of PyTorch's CPU build come from its own index, or a mirror of it, in the variable CPU_INDEX. Without it they
stay as they are.

`.ci/requirements.py ROLE` prints the packages that a role installs by default, as JSON.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import tomllib
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import filter_loader, init_plugin_loader
from ansible.template import Templar, trust_as_template

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "module_utils"))

from trainyard.cluster.unreachable import OLDEST_PYTHON as LEAST
from trainyard.software import lock

# Each file refers to those of the sets that it builds on.
SETS = {"pip": (), "controller": (), "kubernetes": ("controller",), "hardware": ("controller",)}
SETS |= {"execution-environment": ("kubernetes",), "builder": ()}
SETS["test"] = ("hardware", "execution-environment", "builder")
ROLES = ("pytorch", "mindspore", "oneflow")
# Options that are off by default, but whose packages the role pins.
ALSO: dict[str, dict[str, Any]] = {"pytorch": {"pytorch_torchvision": "auto"}}
# The machines that a framework has wheels for, where these are not all.
MACHINES = {"oneflow": ("x86_64",)}
HEADER = "# make requirements writes this file.\n"
# Wheels of PyPy and of Pythons without the GIL are left out.
LINUX = re.compile(r"-(cp\d+|py\d+)(\.py\d)*-(cp\d+|abi3|none)-(.*\.)?(many)?linux\w*_({})\b.*\.whl")
ANYWHERE = re.compile(r"-none-any\.whl")
MAC_OR_SOURCE = re.compile(r"-(cp|py)\d+(\.py\d)*-(cp\d+|abi3|none)-macosx[\w.]*\.whl|\.tar\.gz|\.zip")


def uv(folder: Path, *argv: str, **options: Any) -> None:
    """Have uv resolve requirements in a folder."""
    command = ["uv", "pip", "compile", "--quiet", "--universal", "--no-emit-index-url", *argv]
    env = {**os.environ, "UV_PYTHON_DOWNLOADS": "never"}
    subprocess.run(command, cwd=folder, text=True, check=True, stdout=subprocess.DEVNULL, env=env, **options)


def entries(text: str) -> dict[str, str]:
    """Return the entries of a requirements file, by requirement and marker."""
    found = re.findall(r"^[a-z0-9].*\n(?:[ \t].*\n)*", text, re.MULTILINE)
    return {entry.partition(" \\\n")[0]: entry for entry in found}


def resolve(folder: Path, pins: str, *argv: str, python: str, kept: list[re.Pattern[str]], **options: Any) -> str:
    """Return the entries that uv resolves, with the hashes of the kept files alone; versions of `pins` stay."""
    upgrade = ["--upgrade"] if os.environ.get("UPGRADE") else []
    target, lock = folder / "requirements.txt", folder / "pylock.toml"
    target.write_text(pins)
    lock.unlink(missing_ok=True)
    argv = (f"--python-version={python}", *argv)
    uv(folder, *argv, "--generate-hashes", "--only-binary=:all:", f"--output-file={target}", *upgrade, **options)
    uv(folder, *argv, f"--constraints={target}", "--format=pylock.toml", f"--output-file={lock}", **options)
    hashes = {
        file["hashes"]["sha256"]
        for package in tomllib.loads(lock.read_text())["packages"]
        for file in (*package.get("wheels", ()), *([package["sdist"]] if "sdist" in package else ()))
        if any(pattern.search(file["url"]) for pattern in kept)
    }
    found = []
    for entry in entries(target.read_text()).values():
        first, *rest = (line.removesuffix(" \\") for line in entry.splitlines())
        pinned = [line for line in rest if "--hash" in line and line.rpartition(":")[2] in hashes]
        notes = [line for line in rest if "--hash" not in line]
        if not pinned:
            sys.exit(f"{first} has no wheel for the supported platforms")
        found.append("\n".join([" \\\n".join([first, *pinned]), *notes]) + "\n")
    return "".join(found)


def write_sets() -> None:
    """Write the files for `.venv`, those of pyproject.toml's groups."""
    files = {name: Path("requirements", f"{name}.txt") for name in SETS}
    pins = "".join(entry for file in files.values() if file.exists() for entry in entries(file.read_text()).values())
    kept = [re.compile(LINUX.pattern.format("x86_64|aarch64")), ANYWHERE, MAC_OR_SOURCE]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pyproject.toml").write_text(Path("pyproject.toml").read_text())
        # The largest set first: the others are parts of it.
        resolved: dict[str, dict[str, str]] = {}
        for group in ("test", *(each for each in SETS if each != "test")):
            text = resolve(folder, pins, f"--group={group}", "--no-annotate", python="3.11", kept=kept)
            resolved[group] = entries(text)
            pins = pins if group == "pip" else "".join(resolved["test"].values())
    for group, builds_on in SETS.items():
        there = {line for other in builds_on for line in closure(other, resolved)}
        references = "".join(f"-r {other}.txt\n" for other in builds_on)
        own = "".join(entry for line, entry in resolved[group].items() if line not in there)
        files[group].write_text(HEADER + references + own)


def closure(group: str, resolved: dict[str, dict[str, str]]) -> set[str]:
    """Return the entries of a set and of those that it builds on."""
    return set(resolved[group]).union(*(closure(other, resolved) for other in SETS[group]))


def trusted(value: Any) -> Any:
    """Return variables of the project with their templates as such."""
    if isinstance(value, str):
        return trust_as_template(value)
    if isinstance(value, list):
        return [trusted(each) for each in value]
    return {name: trusted(each) for name, each in value.items()} if isinstance(value, dict) else value


def requested(role: str, **given: Any) -> dict[str, Any]:
    """Return what the role has python_runtime install by default: `packages`, `constraints`, and for which Pythons.

    `given` are other variables than the defaults.
    """
    folder = Path("roles", role)
    variables: dict[str, Any] = {}
    for file in ("defaults/main.yml", "vars/main.yml"):
        variables |= trusted(yaml.safe_load((folder / file).read_text()))
    templar = Templar(loader=DataLoader(), variables={**variables, **ALSO.get(role, {}), **given})
    plan = templar.template(trust_as_template(f"{{{{ __{role}_plan }}}}"))
    beside = templar.template(trusted(variables[f"{role}_packages"]))
    constraints = templar.template(trusted(variables[f"{role}_constraints"]))
    least, most = (tuple(int(part) for part in plan[name].split(".")) for name in ("python_min", "python_max"))
    # For an older Python the packages beside the framework are pinned for its older releases.
    marker = f"; python_version >= '{least[0]}.{least[1]}'" if least > LEAST else ""
    packages = [each if ";" in each else each + marker for each in plan["pins"]] + beside
    pythons = f"python_full_version >= '3.{LEAST[1]}' and python_full_version < '3.{most[1] + 1}'"
    environments = [
        f"sys_platform == 'linux' and platform_machine == '{name}' and {pythons}"
        for name in MACHINES.get(role, ("x86_64", "aarch64"))
    ]
    return {"packages": packages, "constraints": constraints, "environments": environments}


def write_role(role: str) -> None:
    """Write roles/ROLE/files/ROLE_lock.txt."""
    spec = requested(role)
    file = Path("roles", role, "files", f"{role}_lock.txt")
    old = entries(file.read_text() if file.exists() else "")
    machines = "|".join(MACHINES.get(role, ("x86_64", "aarch64")))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pyproject.toml").write_text(f"[tool.uv]\nenvironments = {json.dumps(spec['environments'])}\n")
        (folder / "constraints.txt").write_text("".join(f"{line}\n" for line in spec["constraints"]))
        text = resolve(
            folder,
            "".join(entry for line, entry in old.items() if "+cpu" not in line),
            "--constraints=constraints.txt",
            "-",
            python=f"3.{LEAST[1]}",
            kept=[re.compile(LINUX.pattern.format(machines)), ANYWHERE],
            input="".join(f"{line}\n" for line in spec["packages"]),
        )
        text += cpu_build(folder, text, old) if role == "pytorch" else ""
    file.write_text(HEADER + text)


def cpu_build(folder: Path, usual: str, old: dict[str, str]) -> str:
    """Return the entries of PyTorch's CPU build, each with what it needs; without CPU_INDEX the old ones."""
    index = os.environ.get("CPU_INDEX")
    if not index:
        print("Without CPU_INDEX the hashes of PyTorch's CPU build stay as they are.")
        return "".join(entry for line, entry in old.items() if "+cpu" in line)
    spec = requested("pytorch", pytorch_build="cpu")
    builds = [package for package in spec["packages"] if "+cpu" in package]
    sources = "".join(f'{package.partition("==")[0]} = {{index = "cpu"}}\n' for package in builds)
    (folder / "constraints.txt").write_text("".join(f"{line}\n" for line in entries(usual) if "torch" not in line))
    (folder / "pyproject.toml").write_text(
        f'[project]\nname = "cpu"\nversion = "0"\nrequires-python = ">=3.{LEAST[1]}"\n'
        f"dependencies = {json.dumps(builds)}\n[tool.uv]\nenvironments = {json.dumps(spec['environments'])}\n"
        f'[[tool.uv.index]]\nname = "cpu"\nurl = {json.dumps(index)}\nexplicit = true\n[tool.uv.sources]\n{sources}'
    )
    kept = [re.compile(LINUX.pattern.format("x86_64|aarch64")), ANYWHERE]
    argv = ("--constraints=constraints.txt", "pyproject.toml")
    text = resolve(folder, "", *argv, python=f"3.{LEAST[1]}", kept=kept)
    packages = lock.read(text)
    usual_names = {each.name for each in packages if "+cpu" not in each.version}
    found = ""
    for line, entry in entries(text).items():
        if "+cpu" in line:
            needs = {each.name for each in packages if line.partition("==")[0] in each.via}
            comment = f"    # needs {' '.join(sorted(needs & usual_names))}\n"
            found += re.sub(r"[ \t]+#.*\n", "", entry) + comment
    return found


def main() -> None:
    """Print what one role installs, or write all files."""
    init_plugin_loader([])
    filter_loader.add_directory(str(Path("plugins/filter").resolve()))
    if len(sys.argv) > 1:
        print(json.dumps(requested(sys.argv[1])))
        return
    write_sets()
    for role in ROLES:
        write_role(role)


if __name__ == "__main__":
    main()
