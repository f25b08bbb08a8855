"""How far a task of Ansible's own modules is, in a real run of ansible-playbook on this machine."""

from __future__ import annotations

import subprocess

import pytest
from plays import command, patched

# Lines come sooner than for users.
SOON = """
from ansible.module_utils.trainyard_controller.ansible import running_task, task_progress
running_task.SILENT_S, running_task.ANNOUNCE_AFTER_S, task_progress.EVERY_S = 1.0, 0.2, 0.3
"""
BUILD = """
- hosts: compute
  gather_facts: false
  tasks:
    - name: Build in the background
      ansible.builtin.shell: "echo 'checking for gcc... gcc' >../build.log; sh ../until ../built"
      args: {chdir: "{{ source }}"}
      async: 600
      poll: 1
    - name: Wait in the same folder
      ansible.builtin.shell: sh ../until ../waited
      args: {chdir: "{{ source }}"}
"""


def run(folder, statements, built):
    """Play BUILD; each task lasts until its line has come, the first one until that line has the text `built`."""
    (folder / "source").mkdir()
    (folder / "until").write_text("for i in $(seq 2400); do [ ! -e $1 ] || exit 0; sleep 0.1; done; exit 1")
    argv, settings = command(folder, BUILD, {"n1": {}}, "-e", f"source={folder}/source")
    settings["env"]["PYTHONUNBUFFERED"] = "1"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    lines = []
    with subprocess.Popen(patched(argv, statements), **settings, **pipes) as played:
        for line in played.stdout:
            lines.append(line.rstrip())
            # The name of a task that begins has no time before it.
            if line.startswith("  0:") and built in line:
                (folder / "built").touch()
            if line.startswith("  0:") and "Wait in the same folder" in line:
                (folder / "waited").touch()
    assert played.returncode == 0, lines
    return lines


@pytest.mark.long
def test_a_task_in_the_background_tells_how_far_it_is_and_the_next_one_does_not(tmp_path):
    lines = run(tmp_path, SOON, "Build in the background on n1; configuring 1 check")
    assert not [line for line in lines if "Wait in the same folder" in line and "configuring" in line]


@pytest.mark.long
def test_questions_that_fail_do_not_disturb_a_task(tmp_path):
    broken = f"{SOON}\ndef broken(*_):\n    raise RuntimeError('broken')\ntask_progress.FanOut = broken\n"
    assert "broken" not in "".join(run(tmp_path, broken, "Build in the background"))


def subject(*given):
    """Call the function in a process that is a controller for good."""
    from ansible.module_utils.trainyard_controller.ansible import task_progress

    return task_progress.subject(*given)


@pytest.mark.parametrize(
    ("module", "given", "is_long", "expected"),
    [
        # Ansible's action `package` calls it so.
        ("ansible.legacy.apt", {"name": ["gcc"]}, False, ["packages", {}]),
        ("nvidia_repository", {"step": "install", "owner": "nccl"}, False, ["packages", {}]),
        ("nvidia_repository", {"step": "add"}, False, None),
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
        ("framework_image", {"file": ""}, False, ["image", {"path": "", "file": ""}]),
        (
            "framework_image",
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
