"""Run Ansible's programs with the project's configuration."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import warm_ansible

PROJECT = Path(__file__).resolve().parents[2]


def without_slow_lines(output):
    """Return an output on one line, without what is printed where Ansible needs seconds to begin."""
    said = re.sub(r"(?m)^  \d:\d\d:\d\d   (reading the inventory|the controller prepares) .*\n", "", output)
    return " ".join(said.split())


class Run:
    """The exit status of a program and its output, on one line as well."""

    def __init__(self, done):
        self.rc, self.stdout = done.returncode, done.stdout
        self.output = done.stdout + done.stderr
        self.text = without_slow_lines(self.output)

    def expect(self, rc, *facts):
        """Assert the exit status and that the output has these facts, on one line."""
        assert self.rc == rc, self.output
        assert [fact for fact in facts if fact not in self.text] == [], self.output


def run_ansible(*argv, cwd=PROJECT, timeout=600, **env):
    """Run one of Ansible's programs; `env` adds to the environment, and None takes a variable out of it."""
    env = {**os.environ, "ANSIBLE_CONFIG": str(PROJECT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1", **env}
    env = {name: value for name, value in env.items() if value is not None}
    if warm_ansible.fits(argv, env):
        return Run(warm_ansible.run(argv, cwd, env, timeout))
    return Run(subprocess.run(argv, cwd=cwd, env=env, capture_output=True, text=True, timeout=timeout, check=False))


def extra(*given):
    """Return an option -e for each of these."""
    return [word for each in given for word in ("-e", each)]
