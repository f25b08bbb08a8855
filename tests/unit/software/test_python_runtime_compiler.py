"""The role python_runtime with the packages that compile extensions, in check mode: nothing is installed."""

import json
import sys

import pytest
from ansible_run import run_ansible

CALL = ["ansible-playbook", "-i", "localhost,", "-c", "local", "--check"]
PLAY = """
- hosts: localhost
  gather_facts: false
  vars:
    python_runtime_name: extensions
    python_runtime_packages: [MarkupSafe==3.0.4]
    python_runtime_min_free_mb: 1
  tasks:
    - ansible.builtin.include_role: {name: python_runtime}
      when: first_by_default | default(false)
    - ansible.builtin.include_role:
        name: python_runtime
        tasks_from: "{{ step | default('main') }}"
      vars: {python_runtime_compiler: true}
"""


@pytest.fixture
def run(tmp_path):
    """Run the role with a Python that has no headers."""
    python = tmp_path / "python3"
    code = "import sys, sysconfig; sysconfig.get_path = lambda name: '/proc/nowhere'; exec(sys.argv[1])"
    # describe() calls it with -I -c and a program.
    itself = f"exec {sys.executable}"
    python.write_text(f'#!/bin/sh\n[ "$1" = -I ] && {itself} -I -c "{code}" "$3"\n{itself} "$@"\n')
    python.chmod(0o755)
    (tmp_path / "play.yml").write_text(PLAY)

    def run(**given):
        own = {"python_runtime_root": str(tmp_path / "venvs"), "python_runtime_interpreter": str(python)}
        given = {**own, "ansible_python_interpreter": sys.executable, **given}
        done = run_ansible(*CALL, str(tmp_path / "play.yml"), "-e", json.dumps(given))
        return done.rc, done.text

    return run


def test_the_headers_of_this_python_are_installed_for_extensions(run):
    package = f"python{sys.version_info[0]}.{sys.version_info[1]}-dev"
    facts = {"os_family": "Debian", "pkg_mgr": "apt"}
    status, text = run(first_by_default=True, ansible_facts=facts)
    assert status == 0, text
    # By default no library is requested.
    default, compiles = text.split("To be installed: ")
    assert default.count("Install and verify") == compiles.count("Install and verify") == 1
    assert "Python.h" not in default
    # Before it the compilers, where this machine lacks them, too.
    assert package in compiles.partition(" TASK ")[0].split()
    status, text = run(python_runtime_manage_system=False, ansible_facts=facts)
    assert status != 0
    assert "Python.h is missing, which compiling extensions (python_runtime_compiler) needs" in text
    assert "python_runtime_manage_system is false. Install the package" in text and f"{package}." in text
    status, text = run(step="verify")
    assert status != 0
    assert "extensions differs from what is requested: there is no environment yet; " in text
    assert "Python.h is missing. Run site.yml to fix it." in text
