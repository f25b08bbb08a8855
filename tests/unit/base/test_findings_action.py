"""The action `findings` in a real run, on two hosts that are this machine."""

import json

import pytest
import yaml
from ansible_run import run_ansible

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
    copy = {"ansible.builtin.copy": {"content": SEEN, "dest": "{{ noted }}/seen"}}
    stop = {"findings": {"findings": "{{ found[:1] }}"}, "run_once": True}
    late = {"ansible.builtin.file": {"path": "{{ noted }}/late", "state": "directory"}, "check_mode": False}
    play = {"hosts": "n1,n2", "gather_facts": False, "vars": {"noted": str(folder), "found": FINDINGS}}
    (folder / "play.yml").write_text(
        yaml.safe_dump([{**play, "tasks": [*tasks, {**copy, "run_once": True, "check_mode": False}, stop, late]}])
    )
    local = {"ansible_connection": "local", "ansible_python_interpreter": "{{ ansible_playbook_python }}"}
    hosts = {"all": {"hosts": {"n1": local, "n2": local}}}
    (folder / "hosts.yml").write_text(yaml.safe_dump(hosts))
    run_ansible("ansible-playbook", "--check", "-i", str(folder / "hosts.yml"), str(folder / "play.yml")).expect(2)
    return folder


@pytest.fixture
def seen(run):
    """Return the results of the tasks, by host."""
    return json.loads((run / "seen").read_text())


def test_nothing_found_is_no_failure(seen):
    assert [seen[host]["tried_none"]["failed"] for host in ("n1", "n2")] == [False, False]
    assert seen["n1"]["tried_none"]["changed"] is False


def test_findings_fail_with_one_text_and_are_recorded(run, seen):
    text = " ".join(seen["n1"]["tried_all"]["msg"].split())
    assert text == "1 finding stop this. 1. disk on n1, n2 found 1 MiB expected more do make room"
    assert json.loads((run / "record").read_text()) == FINDINGS


def test_all_hosts_stop_after_run_once_and_otherwise_the_one_with_findings(run, seen):
    assert [seen[host]["tried_own"]["failed"] for host in ("n1", "n2")] == [False, True]
    assert seen["n2"]["tried_own"]["msg"].startswith("1 finding:")
    assert not (run / "late").exists()


@pytest.mark.parametrize(("name", "message"), [
    ("text", "'findings'"), ("nothing", "missing required arguments: findings"), ("more", "found the options"),
])  # fmt: skip
def test_wrong_arguments_are_named(seen, name, message):
    assert seen["n1"][f"tried_{name}"]["failed"] and message in seen["n1"][f"tried_{name}"]["msg"]
