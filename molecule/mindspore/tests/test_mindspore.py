"""What mindspore promises: an existing combination, proved by run_check as the training user, equal on all nodes.

MindSpore is on the first three nodes; one start of it takes seconds, so few tests start it.
"""

import json

import pytest
from lab_jobs import other_numpy

VENV = "/opt/trainyard/venvs/mindspore"


@pytest.fixture(scope="module")
def members(node, node_names):
    """The nodes that have MindSpore."""
    return {name: node(name) for name in node_names[:3]}


@pytest.fixture
def last(members):
    """Name of the last of them."""
    return list(members)[-1]


def test_every_node_was_verified(members):
    for host in members.values():
        record = json.loads(host.check_output(f"cat {VENV}/.trainyard.json"))
        result = record["verified"]["result"]
        assert (result["mindspore"], result["device"]) == ("2.10.0", "CPU")
        assert "installed on platform [CPU] successfully" in result["run_check"]


UNCOMPILED = """
import os, sys, mindspore
files = [module.__cached__ for module in list(sys.modules.values()) if getattr(module, "__cached__", None)]
assert any("mindspore" in file for file in files)
print(mindspore.__version__, *[file for file in files if not os.path.exists(file)])
"""


def test_the_training_user_imports_it_and_it_is_compiled(members, last):
    shown = members[last].check_output(f"cd / && sudo -u train {VENV}/bin/python - <<'END'\n{UNCOMPILED}END")
    assert shown.splitlines()[-1] == "2.10.0"


def test_the_cheap_check_passes_and_changes_nothing(run_playbook):
    run_playbook("changed.yml", step="verify").expect(0).changes_nothing()


@pytest.mark.long
def test_libgomp_comes_back(run_playbook, members, last):
    node = members[last]
    node.check_output("sudo dpkg --remove --force-depends libgomp1")
    refused = run_playbook("changed.yml", "--limit", last, mindspore_manage_system=False)
    preview = run_playbook("changed.yml", "--limit", last, "--check")
    done = run_playbook("changed.yml", "--limit", last)
    refused.fails(f"{last}: libgomp.so.1 is missing, which MindSpore needs", "Install the package libgomp1.")
    preview.expect(0, "To be installed: libgomp1")
    assert done.rc == 0, done.output
    assert node.package("libgomp1").is_installed


def test_a_node_with_another_version_is_named(run_playbook, node_names, members, last):
    with other_numpy(members[last], VENV, "1.26.4", "1.26.3"):
        run_playbook("changed.yml", mindspore_packages=[]).fails(
            f"versions on {last} found mindspore 2.10.0 for cpu, numpy 1.26.3, Python 3",
            "expected mindspore 2.10.0 for cpu, numpy 1.26.4",
            f"as on {node_names[0]}",
        )
        run_playbook("changed.yml", step="verify").fails()


WHEEL = "file:///srv/wheels/mindspore-2.10.0-cp311-cp311-linux_x86_64.whl"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {
                "mindspore_version": "2.2.14",
                "mindspore_device": "gpu",
                "mindspore_cuda": "11.6",
                "mindspore_wheel_url": WHEEL,
                "mindspore_wheel_sha256": 64 * "0",
            },
            "the NVIDIA driver is missing; MindSpore 2.2.14 for gpu needs CUDA 11.6, cuDNN 8.5, NVIDIA driver 510",
        ),
        (
            {"mindspore_wheel_url": WHEEL, "mindspore_wheel_sha256": 64 * "0"},
            "No such file or directory: '/srv/wheels/mindspore-2.10.0-cp311-cp311-linux_x86_64.whl'",
        ),
    ],
)
def test_an_impossible_request_changes_nothing(run_playbook, members, last, given, message):
    before = members[last].check_output(f"cat {VENV}/.trainyard.json")
    run_playbook("changed.yml", "--limit", last, **given).fails(message)
    assert members[last].check_output(f"cat {VENV}/.trainyard.json") == before
    assert not members[last].file(f"{VENV}/.trainyard-building").exists
