"""A build from source: made on one node, copied to the others, found by sessions, taken away again."""

import json

AS_TRAIN = "sudo --user=train --set-home"
PREFIX = "/opt/trainyard/openmpi-4.1.4"
LINK = "/opt/trainyard/openmpi"


def test_the_build_starts_processes_on_all_nodes(host, node_names):
    where = ",".join(f"{name}:2" for name in node_names)
    started = host.check_output(f"{AS_TRAIN} timeout 60 {LINK}/bin/mpirun -H {where} --bind-to none uname -n")
    assert sorted(started.split()) == sorted(node_names * 2)


def test_only_the_first_node_built_it(node, node_names):
    records = {node(name).check_output(f"cat {PREFIX}/.trainyard.json") for name in node_names}
    assert len(records) == 1
    assert json.loads(records.pop())["configure"][0] == f"--prefix={PREFIX}"
    assert [node(name).exists("gcc") for name in node_names] == [True] + [False] * (len(node_names) - 1)


def test_sessions_of_the_training_user_find_it(host, node_names):
    for name in node_names:
        shown = host.check_output(
            f"{AS_TRAIN} ssh -o BatchMode=yes {name} 'command -v mpirun; echo $LD_LIBRARY_PATH; mpirun --version'"
        ).splitlines()
        assert shown[:3] == [f"{LINK}/bin/mpirun", f"{LINK}/lib", "mpirun (Open MPI) 4.1.4"]
    assert host.check_output("sudo su - train -c 'command -v mpirun'") == f"{LINK}/bin/mpirun"
    assert "openmpi" not in host.check_output("bash -lc 'echo $PATH'"), "another user's sessions are as before"


def test_nothing_is_left_of_the_build(host):
    assert host.check_output("ls /opt/trainyard | grep openmpi | sort") == "openmpi\nopenmpi-4.1.4"
    assert host.run("ls -d /opt/trainyard/.openmpi-building*").rc != 0


def test_a_new_node_gets_a_copy(run_playbook, node, node_names):
    last = node(node_names[-1])
    last.check_output(f"sudo rm -rf {PREFIX} {LINK}")
    done = run_playbook("converge.yml").expect(0)
    changed = done.changes
    assert {name for name in node_names if changed[name]} == {node_names[-1]}
    assert f"{node_names[-1]}: Open MPI 4.1.4 is copied from {node_names[0]}" in done.text


def test_a_failed_build_names_the_reason_and_keeps_the_prefix(run_playbook, node_names, node):
    only_first = ("--limit", node_names[0])
    for given, said in (
        ({"source_sha256": "1" * 64}, "could not be built: Download the archive of Open MPI 4.1.4: The checksum for"),
        (
            {"source_options": ["--with-hwloc=/nowhere"]},
            "could not be built: Configure, build and install Open MPI 4.1.4:",
        ),
    ):
        done = run_playbook("converge.yml", *only_first, **given).fails(said)
    assert "error:" in done.text and "/nowhere" in done.text, "the end of the log is shown"
    first = node(node_names[0])
    assert "4.1.4" in first.check_output(f"{LINK}/bin/mpirun --version")
    first.check_output("sudo rm -rf /opt/trainyard/.openmpi-building-*")


def test_back_to_the_packages(run_playbook, node, node_names):
    run_playbook("../openmpi/converge.yml", timeout=900).expect(0)
    for name in node_names:
        one = node(name)
        left = one.run("ls -d /etc/ssh/sshd_config.d/*sessions* /etc/profile.d/*openmpi* /opt/trainyard/openmpi")
        assert left.stdout == ""
        shown = one.check_output(f"{AS_TRAIN} ssh -o BatchMode=yes {node_names[0]} command -v mpirun")
        assert shown == "/usr/bin/mpirun"
