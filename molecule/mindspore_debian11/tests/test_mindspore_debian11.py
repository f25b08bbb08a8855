"""MindSpore on Debian 11: what Python 3.9 can have is installed and proved, what it cannot have is refused."""

import json

VENV = "/opt/trainyard/venvs/mindspore"


def test_the_last_release_for_its_python_was_verified(host):
    assert host.system_info.release.startswith("11")
    record = json.loads(host.check_output(f"cat {VENV}/.trainyard.json"))
    result = record["verified"]["result"]
    assert (record["python"].rpartition(".")[0], result["mindspore"], result["device"]) == ("3.9", "2.9.0", "CPU")
    assert "installed on platform [CPU] successfully" in result["run_check"]


def test_a_newer_release_is_refused_and_what_is_there_stays(host, run_playbook):
    before = host.check_output(f"cat {VENV}/.trainyard.json")
    done = run_playbook("converge.yml", version="2.10.0")
    done.fails("the packages support 3.10 to 3.12; name another interpreter or another version")
    assert host.check_output(f"cat {VENV}/.trainyard.json") == before
