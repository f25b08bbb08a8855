"""Open MPI and nccl-tests on hosts that share their folder of software: they are this machine."""

import json

from plays import play

PLAY = """
- hosts: compute
  gather_facts: false
  tasks:
    - private_folder: {path: "{{ scratch }}", folders: [stage]}
      when: nodes[inventory_hostname].action == 'build'
    - copy: {dest: "{{ scratch }}/stage/.trainyard.json", content: "{{ nodes.gpu1.record | to_json }}"}
      when: nodes[inventory_hostname].action == 'build'
    - include_role: {name: build_once, tasks_from: place}
      vars: {build_once_new: "{{ scratch }}/stage"}
      when: nodes[inventory_hostname].action == 'build'
    - include_role: {name: build_once}
      vars: {build_once_nodes: "{{ nodes }}", build_once_report: "{{ inventory_hostname }} gets a copy"}
  vars:
    scratch: "{{ root }}/.building-{{ inventory_hostname }}"
    build_once_prefix: "{{ root }}/{{ own | default('shared') }}"
    build_once_scratch: "{{ scratch }}"
"""


def changes(done):
    """Return how many tasks changed something, by host."""
    lines = [line for line in done.stdout.splitlines() if " changed=" in line]
    return {line.split()[0]: int(line.partition("changed=")[2].split()[0]) for line in lines}


def run(tmp_path, records, hosts):
    nodes = {
        host: {"action": "copy" if number else "build", "source": "gpu1", "record": {"make": [record]}}
        for number, (host, record) in enumerate(records.items())
    }
    root = tmp_path / "software"
    given = json.dumps({"nodes": nodes, "root": str(root)})
    done = play(tmp_path, PLAY, hosts, "--extra-vars", given)
    return done, sorted(path.name for path in root.iterdir())


def test_a_build_is_copied_to_hosts_alone_that_do_not_share_its_folder(tmp_path):
    hosts = {"gpu1": {}, "gpu2": {}, "gpu3": {"own": "other"}}
    done, left = run(tmp_path, dict.fromkeys(hosts, "a"), hosts)
    assert done.returncode == 0, done.stdout
    assert changes(done) == {"gpu1": 3, "gpu2": 0, "gpu3": 3}
    assert "gpu3 gets a copy" in done.stdout and "gpu2 gets a copy" not in done.stdout
    assert left == [".other.lock", ".shared.lock", "other", "shared"]


def test_hosts_that_need_different_builds_do_not_share_their_folder(tmp_path):
    done, _ = run(tmp_path, {"gpu1": "a", "gpu2": "b"}, {"gpu1": {}, "gpu2": {}})
    assert done.returncode != 0
    shown = " ".join(done.stdout.split())
    assert "need different builds: 1 finding" in shown and "/software/shared has the build of another host" in shown
    assert "1. build on gpu2 found" in shown, shown
