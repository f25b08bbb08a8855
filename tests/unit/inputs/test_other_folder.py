"""Calling a playbook from another folder, where Ansible does not find the project's configuration."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[3]
INVENTORY = "compute: {hosts: {n1: {ansible_connection: local}}}\n"


@pytest.fixture
def call(tmp_path):
    (tmp_path / "hosts.yml").write_text(INVENTORY)

    def run(book, *arguments, **env):
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
        argv = ["ansible-playbook", str(PROJECT / book), "-i", "hosts.yml", *arguments]
        done = subprocess.run(
            argv, cwd=tmp_path, env={**kept, "ANSIBLE_NOCOLOR": "1", **env}, capture_output=True, text=True, check=False
        )
        return done.returncode, " ".join((done.stdout + done.stderr).split())

    return run


@pytest.mark.parametrize("book", ["launch.yml", "site.yml", "playbooks/status.yml", "playbooks/verify.yml"])
def test_a_call_from_another_folder_is_a_finding(call, book):
    rc, text = call(book)
    assert rc == 2
    assert f"do cd {PROJECT}, or export ANSIBLE_CONFIG={PROJECT}/ansible.cfg" in text
    assert "ERROR" not in text and "PLAY" not in text


def test_another_configuration_is_named(call, tmp_path):
    (tmp_path / "ansible.cfg").write_text("[defaults]\nforks = 2\n")
    rc, text = call("launch.yml", ANSIBLE_CONFIG=str(tmp_path / "ansible.cfg"))
    assert rc == 2
    assert f"found {tmp_path}/ansible.cfg expected {PROJECT}/ansible.cfg" in text


def test_any_folder_works_with_the_configuration(call):
    rc, text = call("launch.yml", "-e", "job=nowhere.yml", ANSIBLE_CONFIG=str(PROJECT / "ansible.cfg"))
    assert (rc, "no file nowhere.yml" in text) == (2, True)
