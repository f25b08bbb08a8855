"""Runs of ansible-playbook over hosts that are this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import warm_ansible
from job_cluster import PATIENCE_S
from warm_ansible import PROJECT, SETTINGS

_PATCHED = """
import runpy, sys
import ansible.module_utils
ansible.module_utils.__path__.append(sys.argv.pop(1))
exec(sys.argv.pop(1))
sys.argv.pop(0)
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def patched(argv, statements):
    """Return a command of ansible-playbook that runs statements of Python first, such as one that shortens a limit."""
    return [sys.executable, "-c", _PATCHED, str(PROJECT / "module_utils"), statements, *argv]


def command(folder, text, hosts, *options, **environment):
    """Return the command and the arguments of subprocess that play a text over hosts with these variables."""
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    compute = {name: {**local, **variables} for name, variables in hosts.items()}
    (folder / "hosts.json").write_text(json.dumps({"compute": {"hosts": compute}}))
    (folder / "play.yml").write_text(text)
    env = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
    program = str(Path(sys.executable).with_name("ansible-playbook"))
    argv = [program, "-i", str(folder / "hosts.json"), str(folder / "play.yml"), *options]
    return argv, {"env": {**env, **SETTINGS, **environment}, "cwd": folder, "text": True}


def play(folder, text, hosts, *options, **environment):
    argv, arguments = command(folder, text, hosts, *options, **environment)
    if warm_ansible.fits(argv, arguments["env"]):
        return warm_ansible.run(argv, folder, arguments["env"], PATIENCE_S)
    return subprocess.run(argv, **arguments, capture_output=True, check=False, timeout=PATIENCE_S)
