"""Time to save in Slurm: the script of a job with real ranks and simulated commands of Slurm."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import uuid
from dataclasses import replace

import pytest
from ansible.module_utils.trainyard.findings.shapes import misfit
from ansible.module_utils.trainyard.job import schedulers
from ansible.module_utils.trainyard.job.run.saving import SAVING, lines, of_slurm
from ansible.module_utils.trainyard.job.schedulers import slurm
from ansible.module_utils.trainyard.job.schedulers.records import Source
from ansible.module_utils.trainyard_controller import reporting
from ansible.module_utils.trainyard_controller.planning import rendered
from ansible.module_utils.trainyard_node.job.run import processes as procs
from ansible.module_utils.trainyard_node.machine.json_files import read_json
from job_cluster import wait_for
from test_slurm import FACTS, GIVEN, WHERE, planned, script

# A rank with a data loader worker: it takes a second to save if it is asked, and ends with 3.
SAVER = """
import os, signal, subprocess, sys, time
asked = []
if os.environ["RANK"] == "0":
    signal.signal(signal.SIGUSR1, lambda *_: asked.append(1))
worker = subprocess.Popen(["sleep", "600"])
open(f"up-{os.environ['RANK']}", "w").close()
while not asked:
    time.sleep(0.05)
time.sleep(1)
print("saved", len(asked), worker.poll(), flush=True)
worker.kill()
sys.exit(3)
"""


@pytest.fixture
def saving(tmp_path):
    """Run the script of a job with two ranks on one node and with simulated commands of Slurm, until the ranks run."""
    # Other tests run at the same time.
    job_id = f"digits-{uuid.uuid4().hex[:12]}"
    folder, bin_dir = tmp_path / "jobs" / job_id, tmp_path / "venv/bin"
    bin_dir.mkdir(parents=True)
    start = 'while [ "$1" != bash ]; do shift; done\nexport SLURMD_NODENAME=n1 SLURM_NODEID=0 SLURM_LOCALID=0\n'
    ranks = 'case "$3" in rank) for id in 0 1; do SLURM_PROCID=$id "$@" & done; wait %1 && wait %2 ;; *) "$@" ;; esac\n'
    bad = "status=$?; [ $status = 0 ] || echo bad exit >>$TRAINYARD_JOB_DIR/calls; exit $status\n"
    for name, text in (
        ("srun", f"#!/bin/bash\nset -m\n{start}{ranks}{bad}"),
        ("scancel", '#!/bin/sh\necho scancel "$@" >>$TRAINYARD_JOB_DIR/calls; kill -KILL $SCRIPT\n'),
        ("scontrol", "#!/bin/sh\necho n1\n"),
        ("getent", "#!/bin/sh\necho 127.1.2.3\n"),
        ("python", f'#!/bin/sh\nexec {sys.executable} "$@"\n'),
    ):
        (bin_dir / name).write_text(text)
        (bin_dir / name).chmod(0o755)
    (tmp_path / "train.py").write_text(SAVER)
    archive = subprocess.run(["tar", "-czC", tmp_path, "train.py"], capture_output=True, check=True).stdout
    given = {**GIVEN, "job_launcher": "direct", "job_venv": str(bin_dir.parent), "job_port": 29500, "job_timeout": 600}
    given |= {"job_command": ["bash", "-c", "python train.py | cat; exit ${PIPESTATUS[0]}"], "job_stop_signal": "USR1"}
    job, _ = schedulers.parse(given)
    # The address of n1 is that of this machine, as scontrol and getent say.
    plan, _ = slurm.plan(
        job, FACTS, Source(["train.py"], archive), replace(WHERE, state_dir=str(tmp_path), job_id=job_id)
    )
    path = tmp_path / "job.sbatch"
    text = rendered(plan).submitted["job.sbatch"].replace("/^127\\./", "/^none/")
    path.write_text(text.replace("\nexport LC_ALL", "\nexport SCRIPT=$$ LC_ALL", 1))
    env = {"SLURM_JOB_ID": "42", "SLURM_JOB_NODELIST": "n1", "SLURM_CPUS_ON_NODE": "4"}
    with subprocess.Popen(["bash", path], env=env, start_new_session=True) as running:
        try:
            wait_for(lambda: len(list((folder / "source").glob("up-*"))) == 2, "both ranks")
            yield running, folder
        finally:
            for pid in procs.of_job(job_id):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def calls(folder):
    return (folder / "calls").read_text() if (folder / "calls").exists() else ""


def saved(folder):
    log = (folder / "logs/rank_0.log").read_text()
    assert log == "saved 1 None\n", log
    return True


def ended(folder, rank):
    path = folder / f"exits/rank_{rank}.exit"
    return int(path.read_text().split()[3]) if path.exists() else None


def test_ranks_save_before_a_job_of_slurm_is_canceled(saving):
    """Rank 1, which does not handle the signal, ends by it: neither srun nor Slurm may end rank 0 for that."""
    running, folder = saving
    running.send_signal(signal.SIGUSR2)
    running.wait(60)
    assert saved(folder) and calls(folder) == "scancel 42\n"
    assert (ended(folder, 0), ended(folder, 1)) == (3, 128 + signal.SIGUSR1)
    log = (folder / "logs/slurm.log").read_text()
    assert "trainyard: time to save: rank_0 on n1 handled SIGUSR1 and has left\n" in log and "rank_1" not in log
    assert lines(of_slurm(log, 30.0, 2), watched=False) == ["time to save: 1 rank handled SIGUSR1"]


def test_ranks_save_before_their_time_in_slurm_is_up(saving):
    """Slurm ends the job, or requeues it: the script waits for that."""
    running, folder = saving
    running.send_signal(signal.SIGUSR1)
    wait_for(lambda: running.poll() is not None or procs.name(running.pid) == "sleep", "the ranks' time is over")
    assert running.poll() is None and saved(folder) and calls(folder) == ""


def test_a_rank_that_slurm_itself_ends_may_save(saving):
    """As after scancel: SIGTERM reaches the tasks of srun, the second time or after their time it ends all."""
    _, folder = saving
    tasks = [pid for pid in procs.of_job(folder.name) if f"{folder}/task.sh" in procs.arguments(pid)[1:2]]
    assert len(tasks) == 2
    for pid in tasks:
        os.kill(pid, signal.SIGTERM)
    wait_for(lambda: ended(folder, 0) is not None, "rank 0")
    assert saved(folder) and ended(folder, 0) == 3 and ended(folder, 1) > 128


def test_the_report_says_which_ranks_of_a_job_of_slurm_did_not_leave(tmp_path):
    run = tmp_path / "digits-1"
    (run / "logs").mkdir(parents=True)
    plan, _ = planned(job_stop_grace=30)
    plan = {**plan.as_dict(), "created": "2026-11-20T10:15:00+0000"}
    (run / "plan.json").write_text(json.dumps(plan))
    told, late = "trainyard: time to save: ", "did not leave within 30 s (job_stop_grace)\n"
    first = f"trainyard: job 42 on n[1-2], attempt 1\n{told}rank_0 on n1 handled SIGTERM and has left\n"
    last = f"trainyard: job 42 on n[1-2], attempt 2\n{told}rank_0 on n1 handled SIGTERM and has left\n"
    forged = f"{told}rank_99 on n1 {late}{told}rank_0 on {'n' * 300} {late}"
    (run / "logs/slurm.log").write_text(f"{first}{told}rank_1 on n1 {late}{last}{forged}{told}rank_1 on n2 {late}")
    state = {"state": "stopped", "started": 1000.0, "finished": 1010.0, "nodes": []}
    report = reporting.report(run, {}, {}, job_state=state)
    saving = read_json(run / "summary.json")["saving"]
    assert (saving["asked"], saving["signal"], saving["stayed"]) == (2, "TERM", {"n2": [1]})
    assert not misfit(saving, SAVING)
    assert "  rank 1 on n2 did not leave within 30 s (job_stop_grace), and had to be ended" in report.text.splitlines()
    # The last attempt ended by itself.
    assert of_slurm(f"{first}trainyard: job 42 on n[1-2], attempt 2\n", 30.0, 2) is None


def test_slurm_signals_the_script_before_the_time_is_up():
    assert "#SBATCH --signal=B:USR1@30\n" in script(job_timeout=180)
    assert "#SBATCH --signal=B:USR1@5\n" in script(job_timeout=180, job_stop_grace=5)
    # A short job would be asked to end soon after its start.
    for without in ({"job_timeout": 179}, {"job_stop_grace": 0}, {"job_launcher": "msrun"}):
        assert "--signal" not in script(**{"job_timeout": 600, **without})
    for without in ({"job_stop_grace": 0}, {"job_launcher": "msrun"}):
        plan, text = planned(**without)[0], script(**without)
        assert plan.settings["stop_grace_s"] == 0 and "asked" not in text and "kill -TERM -- -$child" in text
    assert planned()[0].settings["stop_grace_s"] == 30
