"""A process in an image ends as the program in it did, and leaves no container; Podman is simulated."""

import ast
import json
import os
import signal
import subprocess
import sys
import zipfile

import pytest
from ansible.module_utils.trainyard.job.plan import images
from ansible.module_utils.trainyard_node.job.run.ranks import container
from job_cluster import packed_runtime, wait_for

PODMAN = """#!/bin/sh
echo "$@" >> "$(dirname "$0")/calls"
case "$1" in
ps) echo trainyard-a-rank0; echo trainyard-a-rank1 ;;
rm) exit 0 ;;
run) while [ "$1" != IMAGE ]; do shift; done; shift; exec "$@" ;;
esac
"""


@pytest.fixture
def job_dir(tmp_path):
    """The folder of a job with an image, as folder.py fills it."""
    (tmp_path / "podman").write_text(PODMAN)
    (tmp_path / "podman").chmod(0o755)
    (tmp_path / "source").mkdir()
    (tmp_path / "trainyard.pyz").write_bytes(packed_runtime())
    record = {"runtime": "podman", "program": str(tmp_path / "podman"), "image": "IMAGE", "id": "sha256:1"}
    record.update(path="/usr/bin:/bin", python="", user="", gpus=False, devices=[])
    record["mounts"] = [[str(tmp_path / "saved"), "/saved", "rw"], ["/etc", "/data", "ro"]]
    plan = {"job_id": "a", "container": record, "base_env": {"HOME": str(tmp_path)}, "secret_env": {}}
    process = {
        "name": "rank0",
        "argv": [],
        "env": {"RANK": "0", "TOKEN": "x"},
        "log": str(tmp_path / "log"),
        "ranks": [0],
    }
    (tmp_path / "node_plan.json").write_text(json.dumps({**plan, "processes": [process]}))
    return tmp_path


def start(job_dir, *argv):
    plan = json.loads((job_dir / "node_plan.json").read_text())
    plan["processes"][0]["argv"] = list(argv)
    (job_dir / "node_plan.json").write_text(json.dumps(plan))
    return subprocess.Popen([sys.executable, "-IS", str(job_dir / "trainyard.pyz"), "exec", str(job_dir), "rank0"])


def log_of(job_dir):
    log = job_dir / "log"
    return log.read_text() if log.exists() else ""


def calls(job_dir, first):
    lines = (job_dir / "calls").read_text().splitlines()
    return [line for line in lines if line.startswith(first)]


@pytest.mark.parametrize("status", [0, 7])
def test_the_status_of_the_program_is_that_of_the_process(job_dir, status):
    command = ["sh", "-c", f'echo "$RANK $TOKEN"; exit {status}']
    assert start(job_dir, *command).wait(90) == status
    assert log_of(job_dir) == "0 x\n"
    (run,) = calls(job_dir, "run ")
    assert "--name trainyard-a-rank0" in run and f"--volume {job_dir}/home:{job_dir}:rw" in run
    assert "--env PATH=/usr/bin:/bin --env RANK --env TOKEN" in run and "TOKEN=" not in run
    # A folder for checkpoints may be new.
    assert (job_dir / "saved").is_dir() and calls(job_dir, "rm ") == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_program_that_a_signal_ended_ends_the_process_by_it(job_dir, number):
    assert start(job_dir, "sh", "-c", f"exit {128 + number}").wait(90) == -number


def test_a_container_is_removed_where_its_program_was_killed(job_dir):
    process = start(job_dir, "sh", "-c", "echo $$; exec sleep 300")
    pid = int(wait_for(lambda: log_of(job_dir), "the program"))
    os.kill(pid, signal.SIGKILL)
    assert process.wait(90) == -signal.SIGKILL
    assert calls(job_dir, "rm ") == ["rm --force --ignore --time 0 trainyard-a-rank0"]


def test_a_signal_to_the_process_reaches_the_program(job_dir):
    command = "import signal, sys; signal.signal(signal.SIGUSR1, lambda *_: sys.exit(3)); print('up', flush=True)"
    command += "; signal.pause()"
    process = start(job_dir, sys.executable, "-c", command)
    wait_for(lambda: "up" in log_of(job_dir), "the program")
    process.send_signal(signal.SIGUSR1)
    assert process.wait(90) == 3


def test_a_start_script_is_waited_for_in_the_image_where_its_python_can(job_dir):
    plan = json.loads((job_dir / "node_plan.json").read_text())
    plan["container"]["python"] = sys.executable
    (job_dir / "node_plan.json").write_text(json.dumps(plan))
    script = f"(until [ -e {job_dir}/go ]; do sleep 0.01; done; echo late) &"
    process = start(job_dir, "sh", "-c", script)
    wait_for(lambda: "waiting for what it left running" in log_of(job_dir), "the end of the script")
    (job_dir / "go").touch()
    assert process.wait(90) == 0
    assert "late" in log_of(job_dir)
    assert f"IMAGE {sys.executable} -IS {job_dir}/trainyard.pyz script sh -c" in calls(job_dir, "run ")[0]


def test_a_process_of_the_node_itself_runs_in_no_image(job_dir):
    plan = json.loads((job_dir / "node_plan.json").read_text())
    plan["processes"][0]["on_host"] = True
    (job_dir / "node_plan.json").write_text(json.dumps(plan))
    assert start(job_dir, "sh", "-c", "exit 5").wait(90) == 5
    assert not (job_dir / "calls").exists()


def test_all_containers_of_a_job_are_removed(job_dir):
    assert container.remove_all(job_dir) == 2
    assert calls(job_dir, "rm ") == ["rm --force --ignore --time 0 trainyard-a-rank0 trainyard-a-rank1"]
    (job_dir / "node_plan.json").write_text("{}")
    assert container.remove_all(job_dir) == 0


def test_our_runtime_in_an_image_has_no_syntax_that_its_oldest_python_lacks(tmp_path):
    """What ranks, agents and start scripts load of it; a real Python of that age is tried by hand."""
    (tmp_path / "trainyard.pyz").write_bytes(packed_runtime())
    program = "import sys; sys.path.insert(0, sys.argv[1]); from runtime.trainyard_node.job.run.ranks import "
    program += (
        "execute, start_script, stop_grace; print(*(name for name in sys.modules if name.startswith('runtime.')))"
    )
    argv = [sys.executable, "-IS", "-c", program, str(tmp_path / "trainyard.pyz")]
    loaded = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
    assert len(loaded) > 10
    with zipfile.ZipFile(tmp_path / "trainyard.pyz") as archive:
        names = {f"{name.replace('.', '/')}{end}" for name in loaded for end in (".py", "/__init__.py")}
        for name in names & set(archive.namelist()):
            ast.parse(archive.read(name), name, feature_version=images.OLDEST)
