"""Start scripts that leave their processes in the background, run as ranks with real processes."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.job import schedulers
from ansible.module_utils.trainyard.job.file import start_scripts
from ansible.module_utils.trainyard.job.plan import log_names
from ansible.module_utils.trainyard.job.run.decide.restart_rules import evidence
from ansible.module_utils.trainyard_node.job.run.ranks import execute, process_table, start_script
from job_cluster import PATIENCE_S, Cluster, packed_runtime, wait_for
from job_samples import make_job, make_plan, member, packed

SCRIPTS = Path(__file__).resolve().parents[3] / "fixtures" / "start_scripts"
# By script: the logs that are collected, and the ranks of which they are.
GUIDES = {
    "run.sh": {"rank_0_train.log": [0, 1]},
    "run_gpu.sh": {"rank_0_gpu_0.log": [0], "rank_0_gpu_1.log": [1]},
    "ascend8p.sh": {"rank_0_train.log": [0]},
    "ascend4p.sh": {f"rank_0_train_{rank}.log": [rank] for rank in range(4)},
    "cluster.sh": {"rank_0_worker_0.log": [0], "rank_0_worker_1.log": [1], "rank_0_scheduler.log": ["none"]},
}
# `wait` alone succeeds, whatever the processes did.
ADVICE = "`wait $! && wait`"


class Rank:
    """A rank of a job on one node, started as a unit or the monitor starts it."""

    def __init__(self, job_dir, *argv, **env):
        self.job_dir, self.log = job_dir, job_dir / "logs" / "rank_0.log"
        (job_dir / "bin").mkdir()
        (job_dir / "bin" / "python").symlink_to(sys.executable)
        shutil.copytree(SCRIPTS, job_dir / "source", dirs_exist_ok=True)
        for name in ("logs", "exits"):
            (job_dir / name).mkdir()
        self.job_id = f"test-{job_dir.name}-{os.getpid()}"
        path = f"{job_dir}/bin:{job_dir}/source:{os.defpath}:/usr/bin:/bin"
        env = {"PATH": path, "TRAINYARD_JOB_ID": self.job_id, "TRAINYARD_JOB_DIR": str(job_dir), **env}
        process = {"name": "rank0", "argv": list(argv), "env": env, "log": str(self.log)}
        (job_dir / "node_plan.json").write_text(json.dumps({"processes": [process], "base_env": {}, "secret_env": {}}))
        (job_dir / "trainyard.pyz").write_bytes(packed_runtime())
        command = [sys.executable, "-IS", str(job_dir / "trainyard.pyz"), "exec", str(job_dir), "rank0"]
        self.process = subprocess.Popen(command, env={"TRAINYARD_JOB_ID": self.job_id}, start_new_session=True)

    def waits(self):
        """Wait until the script has ended, and the rank waits for what it left."""
        wait_for(lambda: "waiting for what it left running" in self.text(), "the end of the script")

    def text(self):
        return self.log.read_text() if self.log.exists() else ""

    def go(self):
        (self.job_dir / "go").touch()

    def status(self):
        return self.process.wait(PATIENCE_S)


@pytest.fixture
def rank(tmp_path):
    made = []

    def make(*argv, **env):
        made.append(Rank(tmp_path / f"job{len(made)}", *argv, **env))
        return made[-1]

    (tmp_path / "job0").mkdir()
    yield make
    for each in made:
        process_table.end(each.job_id, grace_s=0.0)
        each.process.wait()


@pytest.mark.parametrize("script", GUIDES)
def test_a_guides_script_lasts_as_long_as_its_processes_and_their_logs_are_collected(rank, script):
    job = rank("bash", script, "/data")
    job.waits()
    assert job.process.poll() is None
    job.go()
    assert job.status() == 0
    logs = {path.name: path.read_text() for path in job.log.parent.iterdir() if path != job.log}
    assert logs.keys() == GUIDES[script].keys()
    for name, ranks in GUIDES[script].items():
        assert sorted(line for line in logs[name].splitlines() if "loss" in line) == [
            f"epoch: 1 step: 1, loss is 2.30{number}" for number in ranks
        ]


@pytest.mark.parametrize(
    ("script", "end", "status", "facts"),
    [
        *((name, "1=3", 3, ["ended with exit code 3"]) for name in GUIDES if name != "cluster.sh"),
        ("cluster.sh", "none=3", 3, ["ended with exit code 3"]),
        ("run_gpu.sh", "1=-9", -9, ["(output in gpu_1.log) that", "ended with signal 9", "loss is 2.301\n"]),
    ],
)
def test_a_process_of_a_guides_script_that_fails_is_the_failure_of_the_rank(rank, script, end, status, facts):
    job = rank("bash", script, "/data", END=end)
    job.waits()
    job.go()
    assert job.status() == status
    assert all(fact in job.text() for fact in facts)


def test_logs_of_the_same_name_in_several_folders_are_all_collected(rank):
    """Vendors' scripts make a folder for each device; the log of the last one replaced those of the others."""
    deep = "out/" + "x" * 120
    loop = f"for d in device0 device1 {deep}; do mkdir -p $d; RANK=$d python train.py > $d/train.log 2>&1 & done"
    job = rank("bash", "-c", loop)
    job.waits()
    job.go()
    assert job.status() == 0
    logs = {path.name: path.read_text() for path in job.log.parent.iterdir() if path != job.log}
    names = ["device0_train", "device1_train", f"{'x' * 74}_train"]
    assert sorted(logs) == [f"rank_0_{name}.log" for name in names]
    # The name of a longer log would be refused where the logs of all nodes come together.
    plan = make_plan(make_job(launcher="direct"), [member(0)]).as_dict()
    taken, refused = log_names.take_logs(plan, {"n1": {"logs": dict.fromkeys(logs, "")}})
    assert taken["n1"].keys() == logs.keys() and not refused
    for (_, log), folder in zip(sorted(logs.items()), ("device0", "device1", deep)):
        assert f"rank {folder} of" in log


def test_a_script_that_fails_itself_does_not_wait(rank):
    assert rank("bash", "-c", "python train.py & exit 7").status() == 7


def test_a_script_whose_processes_had_all_ended_before_it_has_not_succeeded(rank):
    """The program is missing; only the shell knows that, and it ends with 0."""
    job = rank("bash", "-c", "no-such-python train.py > train.log 2>&1 & while [ -d /proc/$! ]; do :; done")
    assert job.status() == 1
    assert f"append {ADVICE} to it" in job.text()


@pytest.mark.parametrize("status", [0, 7])
def test_a_process_that_ends_before_a_busy_node_looks_has_its_status(rank, status):
    """It ends after the script, so its status is known; the rank does not run meanwhile."""
    until = "until [ -e $TRAINYARD_JOB_DIR/%s ]; do sleep 0.01; done"
    pids = "echo $$ $BASHPID > $TRAINYARD_JOB_DIR/pids"
    job = rank("bash", "-c", f"({pids}; {until % 'go'}; exit {status}) & {until % 'end'}")
    pids = job.job_dir / "pids"
    script, process = wait_for(lambda: pids.exists() and pids.read_text().split(), "its process")
    job.process.send_signal(signal.SIGSTOP)
    # The kernel lets it take a status before it stops.
    wait_for(lambda: process_table.stopped(job.process.pid), "its stop")
    (job.job_dir / "end").touch()
    wait_for(lambda: process_table.state(script) == "Z", "the end of the script")
    job.go()
    wait_for(lambda: process_table.state(process) == "Z", "the end of its process")
    job.process.send_signal(signal.SIGCONT)
    assert job.status() == status


@pytest.mark.parametrize(
    ("command", "status"),
    [
        ("no-such-python train.py > train.log 2>&1 & wait", 1),
        ("python3 -c 'raise KeyError(7)' & wait", 1),
        # It did something; there is no error; something else decides.
        ("python3 -c 'import time\nwhile time.process_time() < 1.1: pass' & no-such-python & wait", 0),
        ("sleep 0.1 > train.log & wait", 0),
        ("no-such-helper > helper.log 2>&1 & wait; true", 0),
    ],
)
def test_a_script_whose_wait_forgets_that_a_process_failed_has_not_succeeded(rank, command, status):
    job = rank("bash", "-c", command)
    assert job.status() == status
    assert (f"end it by {ADVICE}" in job.text()) is bool(status)


def test_a_script_that_ends_as_advised_has_the_status_of_its_process(rank):
    command = "no-such-python train.py > train.log 2>&1 & while [ -d /proc/$! ]; do :; done"
    assert rank("bash", "-c", f"{command}; {ADVICE.strip('`')}").status() == 127


LOOP = """for i in 0 1; do
    export RANK_ID=$i
    if [ $i -eq 0 ]; then {} no-such-python train.py > out/train.log 2>&1 & else sleep 0 > /dev/null & fi
done
"""


@pytest.mark.parametrize(
    ("script", "status", "error"),
    [
        ("no-such-python train.py > train.log 2>&1", 127, "no-such-python: command not found"),
        ("no-such-python train.py &> train.log & wait $!", 127, "no-such-python: command not found"),
        # The shell alone knows how it ended, or nobody.
        ("no-such-python train.py > train.log 2>&1 & while [ -d /proc/$! ]; do :; done", 1, "command not found"),
        (f"mkdir out; {LOOP.format('')}", None, "no-such-python: command not found"),
        (f"mkdir out; {LOOP.format('nohup')}", None, "nohup: failed to run command"),
        ("python missing.py > log.txt 2>&1", 2, "can't open file"),
        ("python -c 'import no_such_module' 2> err", 1, "ModuleNotFoundError: No module named 'no_such_module'"),
        ("no-such-python > /dev/null 2>&1; echo own.sh: line 1: mine: command not found; exit 3", 3, "mine: command"),
    ],
)
def test_the_cause_in_a_file_of_a_scripts_process_is_in_the_ranks_log(rank, script, status, error):
    job = rank("bash", "-c", script)
    ended = job.status()
    assert ended in ((status,) if status else (1, 127)), job.text()
    assert error in evidence(job.text()).get("error", ""), job.text()


@pytest.mark.parametrize(
    "line",
    [
        "numactl: execution of `python': No such file or directory",
        "timeout: failed to run command 'python': Permission denied",
        "mpirun was unable to find the specified executable file, and therefore",
    ],
)
def test_programs_that_start_others_say_that_one_is_missing(line):
    assert evidence(f"{line}\n")["error"] == line


def test_files_that_the_script_did_not_write_say_nothing(rank, tmp_path):
    (tmp_path / "job0" / "source").mkdir()
    old = tmp_path / "job0" / "source" / "old.log"
    old.write_text("run.sh: line 1: python: command not found\n")
    os.utime(old, (1, 1))
    job = rank("bash", "-c", "touch made; ln -s old.log new.log; mkfifo pipe; [ -e old.log ]; exit 4")
    assert job.status() == 4 and "command not found" not in job.text()


@pytest.mark.parametrize(
    ("text", "nothing"),
    [
        ("python train.py &", True),
        ("for i in 1 2; do python train.py & done", True),
        ("(cd a && python train.py &)\n# we do not wait", True),
        ("python train.py &\nwait", False),
        ("python train.py > log 2>&1 && echo done", False),
        ("python train.py &> log |& cat", False),
        ("# a & b\npython train.py", False),
    ],
)
def test_scripts_that_do_not_wait_for_the_background(text, nothing):
    assert start_scripts.waits_for_nothing(text) is nothing


def test_a_helper_beside_the_training_does_not_keep_the_rank(rank):
    """As `nvidia-smi dmon > gpu.log &` does, before a training in the foreground."""
    busy = "import time\nwhile time.process_time() < 1.5: pass"
    job = rank("bash", "-c", f"sleep 1000 & python -c '{busy}'")
    assert job.status() == 0
    assert "the training has ended; ending what ran beside it: sleep 1000" in job.text()
    assert process_table.of_job(job.job_id) == []


def test_a_helper_that_the_script_ends_itself_is_no_failure(rank):
    job = rank("bash", "-c", "trap 'kill $(jobs -p)' EXIT; sleep 1000 & python train.py")
    job.go()
    assert (job.status(), "ended with" in job.text()) == (0, False)


def test_processes_that_a_script_left_get_sigterm_with_the_rank(rank):
    """systemd sends SIGTERM to the main process of a unit alone."""
    job = rank("bash", "-c", "(trap 'echo saved; exit' TERM; echo up; while true; do sleep 0.1; done) &")
    wait_for(lambda: "waiting for" in job.text() and "up\n" in job.text(), "the process to run")
    job.process.send_signal(signal.SIGTERM)
    assert job.status() == -signal.SIGTERM
    assert job.text().endswith("saved\n")


@pytest.mark.parametrize(
    ("commands", "is_one"),
    [
        (["bash run.sh DATA", "/bin/sh -c x", "numactl -N 0 bash run.sh", "./run.sh", "start"], True),
        (["python train.py", "train", "no-such-program"], False),
    ],
)
def test_start_scripts_are_recognized(commands, is_one, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("start").write_text("#!/usr/bin/env bash\ntrain &\n")
    Path("train").write_text("#!/usr/bin/python3\n")
    assert [execute.is_start_script(command.split()) for command in commands] == [is_one] * len(commands)


@pytest.mark.parametrize(
    ("began", "cpu", "ended_cpu", "helper"),
    [
        (10.0, 1.0, 500.0, True),  # a monitor of the GPUs that ran beside
        (10.0, 400.0, 500.0, False),  # another rank
        (90.0, 0.0, 500.0, False),  # a training, after the data were prepared
        (10.0, 0.0, 0.1, False),  # all that a script has started that ended at once
    ],
)
def test_helpers_beside_a_training_are_recognized(began, cpu, ended_cpu, helper):
    left = [{"began": began, "cpu": cpu}]
    assert start_script.only_helpers(left, ended_cpu, began=0.0, now=100.0) is helper


def test_a_job_lasts_as_long_as_what_its_script_left(tmp_path):
    """With monitors: the script's exit status alone ended the job at once, and killed what it had started."""
    with Cluster(tmp_path / "cluster", ["wait"]) as job:
        spec = job.head.spec
        script = f"{sys.executable} rank.py train > train.log 2>&1 &"
        spec["processes"][0]["argv"] = ["bash", "-c", script]
        (job.head.dir / "node_plan.json").write_text(json.dumps(spec))
        job.start()
        job.head.go()
        assert job.over()["state"] == "succeeded"
        job.all_ended()
        assert "step 5/5" in (job.head.dir / "logs" / "rank_0_train.log").read_text()


@pytest.mark.parametrize(
    ("command", "found"),
    [
        (["bash", "run_gpu.sh"], ["run_gpu.sh, which does not wait for its background processes"]),
        (["./sub/run.sh", "D"], ["sub/run.sh, which does not wait for its background processes"]),
        (["bash", "-c", "a & b &"], ["a line of shell, which does not wait for its background processes"]),
        (["bash", "waits.sh"], []),
        (["python", "train.py"], []),
        (["python", "-c", "print(6 & 3)"], []),
    ],
)
def test_schedulers_end_what_a_script_leaves_so_one_without_wait_is_refused(command, found):
    scripts = {name: (SCRIPTS / name.rpartition("/")[2]).read_text() for name in ("run_gpu.sh", "sub/run.sh")}
    source = packed({**scripts, "waits.sh": f"{scripts['run_gpu.sh']}wait\n", "train.py": ""})
    findings = schedulers.not_waited_for(command, source)
    assert [(each.check, each.found) for each in findings] == [("job_command", text) for text in found]
    assert all(ADVICE in each.action for each in findings)
