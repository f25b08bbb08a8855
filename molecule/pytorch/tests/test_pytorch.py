"""What pytorch promises: the wanted version, proved by two processes, equal on all nodes."""

import json

import pytest

VENV = "/opt/trainyard/venvs/pytorch"


def test_the_training_user_imports_the_requested_version(last):
    shown = last.check_output(f"sudo -u train {VENV}/bin/python -c 'import torch; print(torch.__version__)'")
    assert shown.split("+")[0] == "2.13.0"


@pytest.mark.mirrors
def test_hosts_without_a_gpu_get_the_cpu_build_where_pip_finds_it(last):
    offered = last.check_output(f"sudo {VENV}/bin/python -m pip index versions torch")
    has_gpu = last.run("grep -q 0x10de /sys/bus/pci/devices/*/vendor").rc == 0
    shown = last.check_output(f"sudo -u train {VENV}/bin/python -c 'import torch; print(torch.__version__)'")
    assert shown.endswith("+cpu") == ("2.13.0+cpu" in offered and not has_gpu)


def test_two_processes_summed_a_tensor(host):
    result = json.loads(host.check_output(f"cat {VENV}/.trainyard.json"))["verified"]["result"]
    assert result["all_reduce"] == 3.0
    assert result["torch"].split("+")[0] == "2.13.0"


def test_torchrun_is_there(last):
    assert last.run(f"sudo -u train {VENV}/bin/torchrun --help").rc == 0


def test_the_cheap_check_passes_and_changes_nothing(run_playbook):
    run_playbook("changed.yml", step="verify").expect(0).changes_nothing()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"pytorch_version": "latest", "pytorch_build": "gpu"},
            "pytorch cannot be installed: 3 findings. Nothing was changed. 1. input of pytorch found "
            "pytorch_version is 'latest' expected an exact release such as 2.13.0",
        ),
        ({"pytorch_version": "2.13.99"}, "pip could not install torch==2.13.99, numpy==2.4.6"),
    ],
)
def test_bad_input_changes_nothing(run_playbook, last_name, last, given, message):
    before = last.check_output(f"cat {VENV}/.trainyard.json")
    run_playbook("changed.yml", "--limit", last_name, **given).fails(message)
    assert last.check_output(f"cat {VENV}/.trainyard.json") == before
    assert not last.file(f"{VENV}/.trainyard-building").exists
