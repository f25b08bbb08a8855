"""How far a task of Ansible's own modules is, in a real run of ansible-playbook on this machine."""

from __future__ import annotations

import subprocess

import pytest
from job_cluster import PATIENCE_S
from plays import command, patched

# Lines come sooner than for users.
SOON = """
from ansible.module_utils.trainyard_controller import running_task, task_progress
running_task.SILENT_S, running_task.ANNOUNCE_AFTER_S, task_progress.EVERY_S = 1.0, 0.2, 0.3
"""
BUILD = """
- hosts: compute
  gather_facts: false
  tasks:
    - name: Build in the background
      ansible.builtin.shell: echo 'checking for gcc... gcc' >../build.log; sleep 5
      args: {chdir: "{{ source }}"}
      async: 60
      poll: 1
    - name: Wait in the same folder
      ansible.builtin.command: {cmd: sleep 2, chdir: "{{ source }}"}
"""


def run(folder, statements):
    (folder / "source").mkdir()
    argv, settings = command(folder, BUILD, {"n1": {}}, "-e", f"source={folder}/source")
    return subprocess.run(patched(argv, statements), **settings, capture_output=True, check=False, timeout=PATIENCE_S)


def test_a_task_in_the_background_tells_how_far_it_is_and_the_next_one_does_not(tmp_path):
    done = run(tmp_path, SOON)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("  0:00:")]
    assert any("Build in the background on n1; configuring 1 check" in line for line in lines), done.stdout
    waiting = [line for line in lines if "Wait in the same folder" in line]
    assert waiting and not any("configuring" in line for line in waiting)


def test_questions_that_fail_do_not_disturb_a_task(tmp_path):
    broken = f"{SOON}\ndef broken(*_):\n    raise RuntimeError('broken')\ntask_progress.FanOut = broken\n"
    done = run(tmp_path, broken)
    assert done.returncode == 0 and "broken" not in done.stdout + done.stderr


def subject(*given):
    """Call the function in a process that is a controller for good."""
    from ansible.module_utils.trainyard_controller import task_progress

    return task_progress.subject(*given)


@pytest.mark.parametrize(
    ("module", "given", "is_long", "expected"),
    [
        # Ansible's action `package` calls it so.
        ("ansible.legacy.apt", {"name": ["gcc"]}, False, ["packages", {}]),
        ("nvidia_packages", {"owner": "nccl"}, False, ["packages", {}]),
        ("trainyard.cluster.python_environment", {"path": "/opt/a"}, False, ["environment", {"path": "/opt/a"}]),
        (
            "ansible.builtin.get_url",
            {"url": "http://a/b", "dest": "/c/b", "tmp_dest": "/c"},
            False,
            ["download", {"path": "/c", "url": "http://a/b"}],
        ),
        ("ansible.builtin.get_url", {"url": "http://a/b", "dest": "/c/b"}, False, None),
        ("ansible.legacy.command", {"chdir": "/src"}, True, ["build", {"path": "/src"}]),
        ("ansible.legacy.command", {"chdir": "/src"}, False, None),
        (
            "ansible.legacy.command",
            {"argv": ["dkms", "install", "-m", "nvidia", "-v", "580.95.05", "-k", "6.1.0-18-amd64"]},
            False,
            ["build", {"path": "/var/lib/dkms/nvidia/580.95.05/build"}],
        ),
        ("image_state", {"file": ""}, False, ["image", {"path": "", "file": ""}]),
        (
            "image_build",
            {"environment": {"path": "/venv"}, "file": "/a.tar"},
            False,
            ["image", {"path": "/venv", "file": "/a.tar"}],
        ),
        ("ansible.legacy.stat", {"path": "/"}, False, None),
    ],
)
def test_what_is_asked_for_by_module(controller, module, given, is_long, expected):
    found = controller.submit(subject, module, given, is_long).result()
    assert (list(found) if found else None) == expected
