"""The role cuda_toolkit without root, over a toolkit that is there: verified as it is wanted, and as it is there."""

from __future__ import annotations

import getpass
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[3]
PLAY = """
- hosts: localhost
  gather_facts: false
  roles: [cuda_toolkit]
  post_tasks:
    - ansible.builtin.debug: {msg: "wanted {{ cuda_toolkit_verified | to_json }}"}
    - ansible.builtin.include_role: {name: cuda_toolkit, tasks_from: verify_installed}
      vars: {cuda_toolkit_versions: [{provider: wheel, version: "13.0"}]}
    - ansible.builtin.debug: {msg: "there {{ cuda_toolkit_verified | to_json }}"}
"""


def test_a_toolkit_that_is_there_is_tried_as_it_is_wanted_and_as_it_is_there(tmp_path):
    """nvcc is a fake; what it makes sees no device, and none is to be."""
    home = tmp_path / "root/cuda-12.4"
    (home / "bin").mkdir(parents=True)
    shutil.copy(PROJECT / "tests/fixtures/nvidia_driver/nvcc", home / "bin/nvcc")
    (tmp_path / "play.yml").write_text(PLAY)
    given = {"trainyard_become": False, "trainyard_manage_system": False, "trainyard_root": f"{tmp_path}/root"}
    given |= {"trainyard_user": getpass.getuser(), "nvidia_gpus": 0, "cuda_toolkit_verify_mpi": False}
    given |= {"cuda_toolkit_provider": "none", "cuda_toolkit_path": str(home), "cuda_toolkit_version": "12.4"}
    done = subprocess.run(
        ["ansible-playbook", str(tmp_path / "play.yml"), "-e", json.dumps(given)],
        cwd=PROJECT,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_DISPLAY_OK_HOSTS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "ldconfig" not in said and "loader" not in said, "that is for root"
    for word in ("wanted", "there"):
        program = json.loads(re.search(rf"{word} (\{{.*\}})", said.replace('\\"', '"'))[1])[str(home)]
        assert (program["build"], program["run"]) == ("pass", "skipped")
