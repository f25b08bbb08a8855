"""The role python_runtime and what extensions are compiled with, in check mode: nothing is installed here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[3]
CALL = ["ansible-playbook", "-i", "localhost,", "-c", "local", "--check"]
PLAY = """
- hosts: localhost
  gather_facts: false
  vars:
    python_runtime_name: extensions
    python_runtime_packages: [MarkupSafe==3.0.4]
    python_runtime_min_free_mb: 1
  tasks:
    - ansible.builtin.include_role:
        name: python_runtime
        tasks_from: "{{ step | default('main') }}"
"""


@pytest.fixture
def run(tmp_path):
    """Run the role with a Python that has no headers, and return how it ended and what it printed, on one line."""
    python = tmp_path / "python3"
    code = "import sys, sysconfig; sysconfig.get_path = lambda name: '/nowhere'; exec(sys.argv[1])"
    # describe() calls it with -I -c and a program; anything else is as always.
    itself = f"exec {sys.executable}"
    python.write_text(f'#!/bin/sh\n[ "$1" = -I ] && {itself} -I -c "{code}" "$3"\n{itself} "$@"\n')
    python.chmod(0o755)
    (tmp_path / "play.yml").write_text(PLAY)

    def run(**given):
        given = {
            "python_runtime_root": str(tmp_path / "venvs"),
            "python_runtime_interpreter": str(python),
            "ansible_python_interpreter": sys.executable,
            **given,
        }
        done = subprocess.run(
            [*CALL, tmp_path / "play.yml", "-e", json.dumps(given)],
            env={**os.environ, "ANSIBLE_CONFIG": str(PROJECT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return done.returncode, " ".join((done.stdout + done.stderr).split())

    return run


def test_the_headers_of_this_python_are_installed_for_extensions(run):
    package = f"python{sys.version_info[0]}.{sys.version_info[1]}-dev"
    facts = {"os_family": "Debian", "pkg_mgr": "apt"}
    status, text = run(python_runtime_compiler=True, ansible_facts=facts)
    assert status == 0, text
    # Before it the compilers, where this machine lacks them, too.
    assert package in text.partition("To be installed: ")[2].partition(" TASK ")[0].split()
    status, text = run(python_runtime_compiler=True, python_runtime_manage_system=False, ansible_facts=facts)
    assert status != 0
    assert "Python.h is missing, which compiling extensions (python_runtime_compiler) needs" in text
    assert "python_runtime_manage_system is false. Install the package" in text and f"{package}." in text
    status, text = run(python_runtime_compiler=True, step="verify")
    assert status != 0
    assert "extensions differs from what is requested: there is no environment yet; " in text
    assert "Python.h is missing. Run site.yml to fix it." in text


def test_no_library_is_requested_by_default(run):
    status, text = run()
    assert status == 0, text
    assert "Python.h" not in text and "To be installed" not in text
