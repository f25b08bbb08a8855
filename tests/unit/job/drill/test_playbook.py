"""playbooks/drill.yml against this machine: real monitors, signals and kills, with a training without a framework."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from ansible.module_utils.trainyard_node.job.run.ranks import process_table
from ansible_run import PROJECT, run_ansible
from job_cluster import PATIENCE_S, wait_for
from test_interrupts import INVENTORY, play

TRAIN = PROJECT / "tests/fixtures/drill"
PLAYBOOK = str(Path(sys.executable).with_name("ansible-playbook"))


@pytest.fixture
def call(tmp_path):
    """Return the arguments of a drill of the training with one planted defect; keywords are further variables."""
    inventory = tmp_path / "inventory.yml"
    inventory.write_text(INVENTORY.format(python=sys.executable))

    def arguments(defect="", *options, **more):
        saved = str(tmp_path / "saved")
        job = {
            "job_name": f"drill-{defect or 'healthy'}",
            **{"job_launcher": "direct", "job_ranks_per_node": 2, "job_devices": "none", "job_venv": ""},
            **{"job_packages": [], "job_min_disk_mib": 1, "job_source": str(TRAIN), "job_checkpoints": saved},
            "job_command": [sys.executable, "train.py", saved, *filter(None, [defect])],
            **{"trainyard_runs": str(tmp_path / "runs"), "trainyard_state": str(tmp_path / "state")},
            **more,
        }
        return [PLAYBOOK, "playbooks/drill.yml", "-i", str(inventory), "-e", json.dumps(job), *options]

    return arguments


def drilled(tmp_path):
    [file] = (tmp_path / "runs").glob("*/drill.json")
    found = json.loads(file.read_text())
    for run in found["runs"]:
        assert process_table.of_job(run["job_id"]) == []
    return found, (file.parent / "drill.html").read_text()


@pytest.mark.long
def test_a_healthy_job_survives_and_nothing_is_left(call, tmp_path):
    done = run_ansible(*call())
    done.expect(0, "Run 5 of 5", "survives: yes, a killed node costs", "data order continues pass")
    found, page = drilled(tmp_path)
    assert {check["state"] for check in found["checks"]} == {"pass"} and found["noise"] == 0
    assert "job_max_restarts" in found["notes"][0] and all("killed" in note for note in found["notes"][1:])
    assert [run["run"] for run in found["runs"]] == ["undisturbed", "stopped", "resumed", "rank", "node"]
    assert "survives: yes" in page and "step 1" in page
    # Neither the drill's checkpoints nor any in the job's own place.
    assert [path.name for path in tmp_path.glob("saved*")] == []


def test_a_job_that_cannot_be_drilled_starts_nothing(call, tmp_path):
    done = run_ansible(*call(job_checkpoints="saved", drill_steps=2))
    done.expect(2, "2 findings: the job cannot be drilled, and nothing was started.", "below the folder of each run")
    assert not (tmp_path / "runs").exists()


def test_a_program_whose_steps_are_not_recognized_says_what_to_set(call, tmp_path):
    silent = [sys.executable, "-c", "print('nothing of interest')", str(tmp_path / "saved")]
    done = run_ansible(*call(job_command=silent))
    done.expect(2, "no step is recognized", "set job_progress_pattern", "nothing of it runs any more")
    assert [path.name for path in tmp_path.glob("saved*")] == []


def test_check_shows_the_plan_of_the_first_run(call, tmp_path):
    done = run_ansible(*call("", "--check"))
    done.expect(0, "Run 1 of 5")
    assert f"{tmp_path}/saved.drill-" in done.text and "Run 2 of 5" not in done.text
    assert [path.name for path in tmp_path.glob("saved*")] == []


@pytest.mark.long
def test_an_interrupted_drill_ends_its_job_and_removes_its_checkpoints(call, tmp_path):
    screen, arguments = tmp_path / "screen", call()
    command = play("playbooks/drill.yml", arguments[3], screen, json.loads(arguments[5]))
    try:
        wait_for(lambda: "loss " in screen.read_text(), "a step of the first run")
        os.killpg(command.pid, signal.SIGINT)
        assert command.wait(PATIENCE_S) == 130, screen.read_text()
    finally:
        command.kill()
    assert "the drill has ended its job and removed its checkpoints" in screen.read_text()
    runs = list((tmp_path / "runs").glob("*/summary.json"))
    assert runs and not any(process_table.of_job(run.parent.name) for run in runs)
    assert [path.name for path in tmp_path.glob("saved*")] == []
