#!/usr/bin/env python
# SPDX-License-Identifier: Apache-2.0
"""Pin with hashes what the roles install on nodes by default: `make requirements` calls this, in the project's folder.

`.ci/node_requirements.py ROLE` prints what uv is asked, as JSON; without arguments uv writes the files
roles/ROLE/files/ROLE_lock.txt.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import filter_loader, init_plugin_loader
from ansible.template import Templar, trust_as_template

ROLES = ("pytorch", "mindspore", "oneflow")
# The oldest Python of nodes.
LEAST = (3, 9)
# What is not the default, but the role pins as well where it is asked for.
ALSO: dict[str, dict[str, Any]] = {"pytorch": {"pytorch_torchvision": "auto"}}
# The machines that a framework has wheels for, where these are not all.
MACHINES = {"oneflow": ("x86_64",)}


def trusted(value: Any) -> Any:
    """Return variables of the project with their templates as such."""
    if isinstance(value, str):
        return trust_as_template(value)
    if isinstance(value, list):
        return [trusted(each) for each in value]
    return {name: trusted(each) for name, each in value.items()} if isinstance(value, dict) else value


def asked(role: str) -> dict[str, Any]:
    """Return what the role has python_runtime install by default: `packages`, `constraints`, and for which Pythons."""
    folder = Path("roles", role)
    variables: dict[str, Any] = {}
    for file in ("defaults/main.yml", "vars/main.yml"):
        variables |= trusted(yaml.safe_load((folder / file).read_text()))
    passed = yaml.safe_load((folder / "tasks/runtime.yml").read_text())[0]["vars"]
    templar = Templar(loader=DataLoader(), variables={**variables, **ALSO.get(role, {})})
    names = ("packages", "constraints", "python_min", "python_max")
    found = {name: templar.template(trust_as_template(passed[f"python_runtime_{name}"])) for name in names}
    beside = templar.template(trusted(variables[f"{role}_packages"]))
    least, most = (tuple(int(part) for part in found[name].split(".")) for name in ("python_min", "python_max"))
    # Of an older Python the packages beside the framework are pinned for its older releases.
    marker = f"; python_version >= '{least[0]}.{least[1]}'" if least > LEAST else ""
    packages = [each if each in beside or ";" in each else each + marker for each in found["packages"]]
    pythons = f"python_full_version >= '3.{LEAST[1]}' and python_full_version < '3.{most[1] + 1}'"
    environments = [
        f"sys_platform == 'linux' and platform_machine == '{name}' and {pythons}"
        for name in MACHINES.get(role, ("x86_64", "aarch64"))
    ]
    return {"packages": packages, "constraints": found["constraints"], "environments": environments}


def write(role: str, folder: Path) -> None:
    """Have uv write the file of a role; versions that it has stay, unless they are to be upgraded."""
    given = asked(role)
    (folder / "pyproject.toml").write_text(f"[tool.uv]\nenvironments = {json.dumps(given['environments'])}\n")
    (folder / "constraints.txt").write_text("".join(f"{line}\n" for line in given["constraints"]))
    target = Path("roles", role, "files", f"{role}_lock.txt").resolve()
    argv = ["uv", "pip", "compile", "--quiet", "--universal", f"--python-version=3.{LEAST[1]}", "--generate-hashes"]
    argv += ["--only-binary=:all:", "--no-emit-index-url", "--custom-compile-command=make requirements"]
    argv += ["--constraints=constraints.txt", f"--output-file={target}", "-"]
    argv += ["--upgrade"] if os.environ.get("UPGRADE") else []
    subprocess.run(
        argv,
        cwd=folder,
        input="".join(f"{line}\n" for line in given["packages"]),
        text=True,
        check=True,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "UV_PYTHON_DOWNLOADS": "never"},
    )


def main() -> None:
    """Print what one role asks for, or write the files of all of them."""
    init_plugin_loader([])
    filter_loader.add_directory(str(Path("plugins/filter").resolve()))
    if len(sys.argv) > 1:
        print(json.dumps(asked(sys.argv[1])))
        return
    for role in ROLES:
        with tempfile.TemporaryDirectory() as folder:
            write(role, Path(folder))


if __name__ == "__main__":
    main()
