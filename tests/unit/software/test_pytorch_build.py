"""Which PyTorch is asked for by a build, where it is looked for, and that another one is not taken for it."""

import json
import os
import subprocess
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[3]
PLAY = f"""
- hosts: a,b
  gather_facts: false
  vars: {{trainyard_quiet: true, nvidia_stack_set: "{{{{ __stack | default({{}}) }}}}"}}
  roles:
    - {{role: pytorch, when: false}}
  tasks:
    - ansible.builtin.set_fact:
        python_runtime_result:
          version: 3.11.2
          packages: {{torch: 2.13.0, numpy: 2.4.6}}
          verified: {{cuda: "{{{{ '13.0' if inventory_hostname == 'a' else '12.6' }}}}"}}
    - ansible.builtin.debug:
        msg: "{{{{ __pytorch_pin }}}} {{{{ pytorch_extra_index_urls | join(' ') }}}}"
      run_once: true
    - ansible.builtin.include_tasks: {PROJECT}/roles/pytorch/tasks/equal.yml
"""
MIRROR = {"pytorch_builds_url": "https://mirror.example.org/pytorch/"}
# The fact that role nvidia_stack leaves; as a variable of the play, as nobody gives it.
OF_STACK = {"framework": {"name": "pytorch", "version": "2.13.0", "build": "cu126"}}


@pytest.mark.parametrize(
    ("given", "asked", "other"),
    [
        # What pip's usual index has without naming it.
        ({"pytorch_build": "cu130"}, "torch==2.13.0", "b is for CUDA 12.6, expected CUDA 13.0 of the build cu130"),
        (
            {"pytorch_build": "cu130", **MIRROR},
            "torch==2.13.0+cu130 https://mirror.example.org/pytorch/cu130",
            "b is for CUDA 12.6, expected CUDA 13.0 of the build cu130",
        ),
        ({"__stack": OF_STACK}, "torch==2.13.0+cu126", "a is for CUDA 13.0, expected CUDA 12.6 of the build cu126"),
        ({"pytorch_build": "cpu"}, "torch==2.13.0+cpu", ""),
    ],
)
def test_the_build_is_asked_for_and_compared(tmp_path, given, asked, other):
    playbook = tmp_path / "build.yml"
    playbook.write_text(PLAY)
    done = subprocess.run(
        ["ansible-playbook", "-i", "a,b,", str(playbook), "-e", json.dumps(given)],
        env={**os.environ, "ANSIBLE_CONFIG": str(PROJECT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    said = done.stdout.strip().splitlines()
    assert said[0].strip() == asked, done.stdout + done.stderr
    assert (done.returncode == 0) == (other == "")
    assert other in done.stdout
