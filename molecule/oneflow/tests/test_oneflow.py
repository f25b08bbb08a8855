"""The role oneflow: an existing release with the libraries it needs, verified, equal on all nodes."""

import json

from lab_jobs import other_numpy

VENV = "/opt/trainyard/venvs/oneflow"
SITE = f"{VENV}/lib/python3.9/site-packages"
LAUNCH = f"{SITE}/oneflow/distributed/launch.py"


def test_every_node_was_verified(host):
    assert host.system_info.release.startswith("11")
    record = json.loads(host.check_output(f"cat {VENV}/.trainyard.json"))
    assert record["verified"]["result"] == {"oneflow": "0.9.0", "cuda": False, "all_reduce": 3.0}
    assert record["python"].rpartition(".")[0] == "3.9"
    versions = {name: record["packages"][name] for name in ("nvidia-cublas-cu11", "nvidia-cudnn-cu11", "numpy")}
    assert versions == {"nvidia-cublas-cu11": "11.10.3.66", "nvidia-cudnn-cu11": "8.5.0.96", "numpy": "1.23.5"}


def test_the_training_user_imports_it_from_any_folder(host):
    """Without a word about CUDA's libraries, which it finds in its own environment."""
    program = "import oneflow as flow; print(flow.ones(2, 2).sum().item())"
    said = host.check_output(f"cd / && sudo -u train {VENV}/bin/python -c '{program}'")
    assert said.splitlines()[-1] == "4.0"
    host.run_expect([2], "ls /log")


def test_the_cheap_check_passes_and_changes_nothing(run_playbook):
    done = run_playbook("changed.yml", step="verify").expect(0)
    assert done.text.count("changed=0") == 2, done.output


def test_a_launch_module_that_was_edited_on_one_node_is_found(run_playbook, node_names, last):
    last.check_output(f"sudo cp -p {LAUNCH} /root/launch.py && echo '# edited' | sudo tee -a {LAUNCH}")
    try:
        done = run_playbook("changed.yml", step="verify")
        digest = last.check_output(f"sha256sum {LAUNCH}").split()[0]
    finally:
        last.check_output(f"sudo cp -p /root/launch.py {LAUNCH} && sudo rm /root/launch.py")
    done.fails(f"{LAUNCH} on {node_names[-1]} found sha256 {digest} expected sha256 ", f"as on {node_names[0]}")


def test_scripts_that_lie_on_the_nodes_are_compared(run_playbook, node_names, last):
    script = "/srv/train-by-hand.py"
    last.check_output(f"echo 'print(1)' | sudo tee {script}")
    try:
        done = run_playbook("changed.yml", step="verify", oneflow_scripts=[script])
    finally:
        last.check_output(f"sudo rm {script}")
    done.fails(f"{node_names[0]}: {script} is missing. Bring it to all nodes, or correct oneflow_scripts.")


def test_a_node_with_another_version_is_named(run_playbook, node_names, last):
    with other_numpy(last, VENV, "1.23.5", "1.23.4"):
        run_playbook("changed.yml", oneflow_packages=["protobuf==3.20.3"]).fails(
            f"versions on {node_names[-1]} found OneFlow 0.9.0, numpy 1.23.4, protobuf 3.20.3, Py",
            f"expected OneFlow 0.9.0, numpy 1.23.5, protobuf 3.20.3, Python 3.9, as on {node_names[0]}",
        )


def test_an_impossible_request_changes_nothing(run_playbook, node_names, last):
    before = last.check_output(f"cat {VENV}/.trainyard.json")
    done = run_playbook("changed.yml", "--limit", node_names[-1], oneflow_version="0.9.1")
    done.fails("found OneFlow 0.9.1 is not known here expected a known release: 0.5.0")
    assert last.check_output(f"cat {VENV}/.trainyard.json") == before
    assert not last.file(f"{VENV}/.trainyard-building").exists
