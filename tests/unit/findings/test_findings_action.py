"""The action `findings` in a real run, on two hosts that are this machine."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

PROJECT = Path(__file__).resolve().parents[3]
FINDINGS = [
    {"host": host, "check": "disk", "found": "1 MiB", "expected": "more", "action": "make room"}
    for host in ("n1", "n2")
]
TRIED = {
    "none": {"findings": []},
    "all": {"findings": FINDINGS, "headline": "{count} {findings} stop this.", "record": "{{ noted }}/record"},
    "own": {"findings": "{{ [] if inventory_hostname == 'n1' else found }}"},
    "text": {"findings": "none"},
    "nothing": {"headline": "x"},
    "more": {"findings": [], "title": "x"},
}
SEEN = "{{ {'n1': hostvars['n1'], 'n2': hostvars['n2']} | to_json }}"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder in which a run noted what came of all tasks above, and what came after one that stops."""
    folder = tmp_path_factory.mktemp("findings")
    tasks = [{"findings": given, "register": f"tried_{name}", "ignore_errors": True} for name, given in TRIED.items()]
    seen = {
        "ansible.builtin.copy": {"content": SEEN, "dest": "{{ noted }}/seen"},
        "run_once": True,
        "check_mode": False,
    }
    stop = {"findings": {"findings": "{{ found[:1] }}"}, "run_once": True}
    late = {"ansible.builtin.file": {"path": "{{ noted }}/late", "state": "directory"}, "check_mode": False}
    play = {"hosts": "n1,n2", "gather_facts": False, "vars": {"noted": str(folder), "found": FINDINGS}}
    (folder / "play.yml").write_text(yaml.safe_dump([{**play, "tasks": [*tasks, seen, stop, late]}]))
    (folder / "hosts").write_text(
        "[all]\nn1\nn2\n[all:vars]\nansible_connection=local\n"
        "ansible_python_interpreter={{ ansible_playbook_python }}\n"
    )
    program = str(Path(sys.executable).with_name("ansible-playbook"))
    argv = [program, "--check", "-i", str(folder / "hosts"), str(folder / "play.yml")]
    env = {**os.environ, "ANSIBLE_CONFIG": str(PROJECT / "ansible.cfg")}
    done = subprocess.run(argv, cwd=PROJECT, env=env, capture_output=True, text=True)
    assert done.returncode == 2, done.stdout + done.stderr
    return folder


@pytest.fixture
def seen(run):
    """Return the results of the tasks, by host."""
    return json.loads((run / "seen").read_text())


def test_nothing_found_is_no_failure(seen):
    assert [seen[host]["tried_none"]["failed"] for host in ("n1", "n2")] == [False, False]
    assert seen["n1"]["tried_none"]["changed"] is False


def test_findings_fail_with_one_text_and_are_kept(run, seen):
    assert seen["n1"]["tried_all"]["msg"].splitlines() == [
        "1 finding stop this.",
        "",
        "  1. disk on n1, n2",
        "     found     1 MiB",
        "     expected  more",
        "     do        make room",
    ]
    assert json.loads((run / "record").read_text()) == FINDINGS


def test_once_all_hosts_stop_and_else_the_one_that_has_findings(run, seen):
    assert [seen[host]["tried_own"]["failed"] for host in ("n1", "n2")] == [False, True]
    assert seen["n2"]["tried_own"]["msg"].startswith("1 finding:")
    assert not (run / "late").exists()


@pytest.mark.parametrize(("name", "said"), [
    ("text", "'findings'"), ("nothing", "missing required arguments: findings"), ("more", "Unsupported parameters"),
])  # fmt: skip
def test_wrong_arguments_are_named(seen, name, said):
    assert seen["n1"][f"tried_{name}"]["failed"] and said in seen["n1"][f"tried_{name}"]["msg"]
