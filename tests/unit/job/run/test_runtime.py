"""trainyard.pyz: the program that runs on the nodes, started as agents and systemd start it."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
import zipfile

import pytest
from ansible.module_utils.trainyard_controller.nodes import agent_code
from ansible.module_utils.trainyard_node.job.run.ranks import process_table, units
from ansible.module_utils.trainyard_node.job.run.ranks.rank_exits import read_exits
from ansible.module_utils.trainyard_node.machine.json_files import write_json
from job_cluster import packed_runtime, wait_for


@pytest.fixture
def job_dir(tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "exits").mkdir()
    (tmp_path / "trainyard.pyz").write_bytes(packed_runtime())
    return tmp_path


def command(job_dir, *argv):
    return [sys.executable, "-IS", str(job_dir / "trainyard.pyz"), *argv]


def run(job_dir, *argv, **options):
    """Run a command of the zip as rank 5."""
    options = {"env": env_of(job_dir), "capture_output": True, "text": True, **options}
    return subprocess.run(command(job_dir, *argv), **options, check=False)


def env_of(job_dir, **changes):
    return {"TRAINYARD_JOB_DIR": str(job_dir), "RANK": "5", "PATH": os.defpath, **changes}


def test_the_zip_holds_only_modules_of_the_project(job_dir):
    with zipfile.ZipFile(job_dir / "trainyard.pyz") as archive:
        names = archive.namelist()
    assert "__main__.py" in names and "runtime/trainyard_node/job/run/monitor/monitor.py" in names
    assert not [name for name in names if "ansible" in name or not name.endswith((".py", ".pyc"))]
    # Each module finds its imports in the zip.
    files = [name.removesuffix(".py").removesuffix("/__init__") for name in names if name.endswith(".py")]
    load = f"import importlib, sys; sys.path.insert(0, {str(job_dir / 'trainyard.pyz')!r})\n"
    modules = sorted({file.replace("/", ".") for file in files} - {"__main__"})
    load += f"for name in {modules}: importlib.import_module(name)"
    done = subprocess.run([sys.executable, "-IS", "-c", load], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_agent_keeps_it_beside_its_modules(tmp_path):
    """To pack it takes a quarter of a second of CPU on each node at each launch."""
    folder = tmp_path / "digest"
    for path, content in agent_code.modules().items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    call = "from agent.trainyard_node.job.run import packing; import hashlib; "
    call += "print(hashlib.sha256(packing.packed()).hexdigest())"

    def packed():
        argv = [sys.executable, "-IS", "-c", f"import sys; sys.path.insert(0, {str(folder)!r}); {call}"]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout

    first = packed()
    (kept,) = folder.glob("trainyard-*.pyz")
    assert first.strip() == hashlib.sha256(kept.read_bytes()).hexdigest()
    assert zipfile.ZipFile(kept).testzip() is None
    kept.write_bytes(b"kept")
    assert packed().strip() == hashlib.sha256(b"kept").hexdigest()


def test_exits_of_its_commands(job_dir):
    """A rank that cannot be started ends as in a shell."""
    for program, status in (("no-such-program", 127), ("/etc/hostname", 126)):
        assert run(job_dir, "rank", program).returncode == status
        assert f"trainyard: cannot start '{program}': " in (job_dir / "logs" / "rank_5.log").read_text()
    script = job_dir / "crlf.sh"
    script.write_bytes(b"#!/no/such\r\n")
    script.chmod(0o755)
    assert run(job_dir, "rank", str(script)).returncode == 127
    why = "which its first line names: '/no/such'; its lines end as on Windows (CRLF)"
    assert f"': No such file or directory, {why}" in (job_dir / "logs" / "rank_5.log").read_text()
    done = run(job_dir, "dance")
    assert (done.returncode, done.stderr) == (64, "trainyard: unknown command 'dance'\n")


@pytest.mark.parametrize("kind", [".py", ".pyc"])
def test_its_text_and_its_code_each_suffice(job_dir, kind):
    """Another Python than the one that packed it finds code that it cannot use, and takes the text."""
    whole = job_dir / "trainyard.pyz"
    with zipfile.ZipFile(whole) as archive, zipfile.ZipFile(job_dir / "half", "w") as half:
        for name in archive.namelist():
            content = archive.read(name)
            if kind == ".py" and name.endswith(".pyc"):
                content = b"\0\0" + content[2:]
            if name.endswith((".pyc", "__main__.py", "runtime/__init__.py")) or kind == ".py":
                half.writestr(name, content)
    (job_dir / "half").replace(whole)
    assert run(job_dir, "rank", "sh", "-c", "echo started").returncode == 0
    assert (job_dir / "logs" / "rank_5.log").read_text() == "started\n"


@pytest.mark.parametrize(("before", "heading"), [("", ""), ("before\n", "--- started again ---\n")])
def test_a_rank_under_an_agent_writes_to_the_log_of_its_global_rank(job_dir, before, heading):
    env = env_of(job_dir, LOCAL_RANK="1")
    (job_dir / "logs" / "rank_5.log").write_text(before)
    done = run(
        job_dir, "rank", "sh", "-c", "echo out $LOCAL_RANK; echo err >&2; cat; exit 3", env=env, input="not read"
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, "", "")
    assert (job_dir / "logs" / "rank_5.log").read_text() == f"{before}{heading}out 1\nerr\n"


def test_mpirun_whose_ranks_are_start_scripts_is_none(job_dir):
    """Its end does not wait for what it leaves."""
    (job_dir / "source").mkdir()
    log, program = job_dir / "logs" / "mpirun.log", job_dir / "mpirun"
    program.write_text("#!/usr/bin/env python3\nimport os; print('as', os.environ['NAME'], 'of', os.getppid())")
    program.chmod(0o755)
    process = {"name": "mpirun", "argv": [str(program), "sh", "run.sh"], "log": str(log), "env": {"NAME": "mpirun"}}
    spec = {"processes": [process], "base_env": {"PATH": os.environ["PATH"]}, "secret_env": {}}
    (job_dir / "node_plan.json").write_text(json.dumps(spec))
    run(job_dir, "exec", str(job_dir), "mpirun")
    assert log.read_text() == f"as mpirun of {os.getpid()}\n"


def test_mindspores_record_of_a_cluster_is_one_for_each_attempt_of_the_whole_job(job_dir):
    """The process ran three times: once it came back alone, once with all others."""
    (job_dir / "source").mkdir()
    log = job_dir / "logs" / "worker_0.log"
    process = {"name": "rank0", "argv": ["sh", "-c", "echo $MS_RECOVERY_PATH $TRAINYARD_ATTEMPT"], "log": str(log)}
    process["env"] = {"MS_RECOVERY_PATH": "/records/rank0"}
    spec = {"processes": [process], "base_env": {"PATH": os.defpath}, "secret_env": {}, "max_restarts": 3}
    (job_dir / "node_plan.json").write_text(json.dumps(spec))
    (job_dir / "attempts.json").write_text('{"": 1, "rank0": 1}')
    run(job_dir, "exec", str(job_dir), "rank0")
    assert log.read_text() == "--- started again, attempt 3 ---\n/records/rank0/attempt_1 2\n"


AGENT = """
import atexit, os, sys
atexit.register(print, "the interpreter's own end")
print(__name__, sys.argv[1:], sys.path[0] == os.getcwd())
raise {}
"""


@pytest.mark.parametrize(
    ("ending", "status", "said"),
    [
        ("SystemExit", 0, ""),
        ("SystemExit(3)", 3, ""),
        ("SystemExit('no rendezvous')", 1, "no rendezvous\n"),
        ("ValueError('no rank')", 1, "ValueError: no rank\n"),
    ],
)
def test_an_agent_is_a_module_that_leaves_when_it_has_ended(job_dir, ending, status, said):
    (job_dir / "launcher").mkdir()
    (job_dir / "launcher" / "run.py").write_text(AGENT.format(ending))
    start = [sys.executable, str(job_dir / "trainyard.pyz"), "agent", "launcher.run", "--nnodes", "2"]
    done = subprocess.run(start, cwd=job_dir, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (status, "__main__ ['--nnodes', '2'] True\n")
    assert done.stderr.endswith(said) and bool(done.stderr) == bool(said)


TORCHRUN = "--nnodes 2 --node-rank 1 --local-addr n2 --log-dir a-b --no-python py --node-rank --local-addr x"
BEFORE_2 = "--nnodes 2 --node_rank 1 --log_dir a-b --no_python py --node-rank --local-addr x"


@pytest.mark.parametrize(
    ("version", "options"),
    [("1.10.2", BEFORE_2), ("1.13.1+cu117", BEFORE_2), ("2.0.0", TORCHRUN), ("2.13.0", TORCHRUN)],
)
def test_torchrun_before_2_0_gets_the_options_that_it_knows(job_dir, version, options):
    """As the parsers of 1.10.2 and 1.13.1 (torch/distributed/run.py): underscores alone, and no address of its own."""
    (job_dir / "torch/distributed").mkdir(parents=True)
    (job_dir / "torch/__init__.py").write_text(f"__version__ = '{version}'")
    (job_dir / "torch/distributed/run.py").write_text("import sys\nprint(*sys.argv[1:])")
    start = [sys.executable, str(job_dir / "trainyard.pyz"), "agent", "torch.distributed.run", *TORCHRUN.split()]
    done = subprocess.run(start, cwd=job_dir, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == (f"{options}\n", 0)


# PyTorch's agent (elastic/multiprocessing/api.py, SubprocessContext) polls its ranks one after another, ends the others
# once one has failed, and polls all again.
POLLS = """
import os, signal, subprocess, sys, time
ranks = []
for rank, script in enumerate(sys.argv[1:], 4):
    env = {**os.environ, "RANK": str(rank)}
    ranks.append(subprocess.Popen(["sh", "-c", script], env=env, start_new_session=True))
subprocess.run(["true"], env={"PATH": os.environ["PATH"]}, check=True)
while any(rank.returncode is None for rank in ranks):
    if any([rank.poll() for rank in ranks]):
        for rank in ranks:
            if rank.poll() is None:
                os.killpg(rank.pid, signal.SIGTERM)
        for rank in ranks:
            rank.wait()
            rank.poll()
    time.sleep(0.01)
"""
STAYS = "trap 'exit 0' TERM; touch up; while :; do sleep 0.01; done"


def when(file):
    return f"until [ -e {file} ]; do sleep 0.01; done"


@pytest.mark.parametrize(
    ("scripts", "noted"),
    [
        (["exit 0", "exit 0"], {4: "0", 5: "0"}),
        (["exit 3"], {4: "3"}),
        (["kill -9 $$"], {4: "SIGKILL"}),
        # It was told to end, as another one had failed.
        ([f"{when('up')}; exit 3", STAYS], {4: "3", 5: "0 by agent"}),
        (["sleep 600", "exit 3"], {4: "SIGTERM by agent", 5: "3"}),
        ([f"{when('left')}; exit 3", "touch left; exit 0"], {4: "3", 5: "0"}),
    ],
)
def test_an_agent_notes_how_its_ranks_ended(job_dir, scripts, noted):
    assert run_agent(job_dir, scripts) == noted


SAVES = "sleep 600 & trap 'kill -0 $! && touch saved; kill $!; exit 0' USR1; touch up; while :; do sleep 0.01; done"


def test_an_agent_gives_the_others_time_to_save_after_the_failure_of_a_rank(job_dir):
    """The rank's own program is asked, and not the worker that it has started."""
    stop = {"signal": "USR1", "grace_s": 60}
    assert run_agent(job_dir, [f"{when('up')}; exit 3", SAVES], stop=stop) == {4: "3", 5: "0 by agent"}
    assert (job_dir / "saved").exists()


# msrun (cluster/process_entity/_api.py, MindSpore 2.10) polls its workers, whose place is in its own environment, and
# kills the others once one has failed. It does not wait for these.
KILLS = """
import os, signal, subprocess, sys, time
logs = os.environ["TRAINYARD_JOB_DIR"] + "/logs"
os.environ["MS_ROLE"] = "MS_SCHED"
with open(f"{logs}/scheduler.log", "w", encoding="utf-8") as log:
    scheduler = subprocess.Popen(["sh", "-c", "echo fine; exit 7"], stdout=log)
os.environ["MS_ROLE"] = "MS_WORKER"
workers, tails = [], []
for rank, script in enumerate(sys.argv[1:], 4):
    os.environ["RANK_ID"] = str(rank)
    with open(f"{logs}/worker_{rank}.log", "w", encoding="utf-8") as log:
        workers.append(subprocess.Popen(["sh", "-c", script], preexec_fn=os.setsid, stdout=log))
    tails.append(subprocess.Popen(["/usr/bin/tail", "-f", os.devnull]))
while any(worker.poll() is None for worker in workers):
    if any(worker.poll() for worker in workers):
        for worker in workers:
            if worker.poll() is None:
                os.killpg(os.getpgid(worker.pid), signal.SIGKILL)
        break
    time.sleep(0.01)
for tail in tails:
    tail.kill()
scheduler.wait()
subprocess.run(["grep", "-E", "Error", os.devnull])
"""


@pytest.mark.parametrize(
    ("scripts", "noted"),
    [
        (["exit 0", "exit 0"], {4: "0", 5: "0"}),
        (["sleep 600", "exit 3"], {5: "3"}),
        ([f"{when('up')}; exit 3", SAVES], {4: "3"}),
    ],
)
def test_msruns_workers_are_noted_and_may_save(job_dir, scripts, noted):
    stop = {"signal": "USR1", "grace_s": 60}
    assert run_agent(job_dir, scripts, launcher=KILLS, stop=stop) == noted
    assert (job_dir / "saved").exists() == (SAVES in scripts)
    notes = {path.name: path.read_text().split() for path in (job_dir / "ranks").iterdir()}
    assert set(notes) == {"4", "5"} and all(len(note) == 2 for note in notes.values())


def test_all_of_msruns_workers_are_asked_at_the_same_time(job_dir):
    """Each saves only after the other has begun to."""
    saves = "trap 'touch asked-{own}; until [ -e asked-{other} ]; do sleep 0.01; done; touch saved-{own}; exit 0' TERM"
    waits = "; touch up-{own}; while :; do sleep 0.01; done"
    pair = [(saves + waits).format(own=own, other=other) for own, other in ((1, 2), (2, 1))]
    fails = f"{when('up-1')}; {when('up-2')}; exit 3"
    assert run_agent(job_dir, [*pair, fails], launcher=KILLS, stop={"signal": "TERM", "grace_s": 60})[6] == "3"
    assert (job_dir / "saved-1").exists() and (job_dir / "saved-2").exists()


def test_msruns_workers_append_to_their_logs(job_dir):
    """msrun opens each log anew, and copies the errors of the scheduler's."""
    (job_dir / "logs/scheduler.log").write_text("ERROR node 0 is timed out\n")
    (job_dir / "logs/worker_4.log").write_text("step 1 loss 0.5\n")
    run_agent(job_dir, ["echo step 2 loss 0.4", "echo step 2"], launcher=KILLS, stop={})
    logs = [(job_dir / f"logs/worker_{rank}.log").read_text() for rank in (4, 5)]
    assert (job_dir / "logs/scheduler.log").read_text() == "fine\n"
    assert logs == ["step 1 loss 0.5\n--- started again ---\nstep 2 loss 0.4\n", "step 2\n"]


def run_agent(job_dir, scripts, launcher=POLLS, **plan):
    """Run an agent with ranks of these scripts, and return how each has ended."""
    write_json(job_dir / "node_plan.json", plan)
    (job_dir / "launcher").mkdir()
    (job_dir / "launcher" / "run.py").write_text(launcher)
    start = [sys.executable, str(job_dir / "trainyard.pyz"), "agent", "launcher.run", *scripts]
    began = time.time()
    done = subprocess.run(start, cwd=job_dir, env=env_of(job_dir, TRAINYARD_ATTEMPT="2"), check=False)
    assert done.returncode == 0
    found = {}
    for name, ended in read_exits(job_dir).items():
        assert began <= ended["time"] <= time.time() and ended["attempt"] == 2
        how = signal.Signals(ended["signal"]).name if ended["signal"] else str(ended["exit_code"])
        found[int(name.removeprefix("rank"))] = how + (" by agent" if ended.get("by_agent") else "")
    return found


def test_a_rank_ends_when_its_agent_is_killed(job_dir):
    start = "import subprocess, sys; subprocess.Popen(sys.argv[1:], start_new_session=True).wait()"
    rank = command(job_dir, "rank", "sh", "-c", "echo $$; exec sleep 600")
    log = job_dir / "logs" / "rank_5.log"
    with subprocess.Popen([sys.executable, "-c", start, *rank], env=env_of(job_dir)) as agent:
        pid = int(wait_for(lambda: log.exists() and log.read_text().strip(), "the rank"))
        assert process_table.start_time(pid) is not None
        agent.send_signal(signal.SIGKILL)
    wait_for(lambda: process_table.start_time(pid) is None, "the rank to end")


@pytest.fixture
def systemctl(tmp_path, monkeypatch):
    """Stands in for systemctl: does what the test has it do."""

    def make(script):
        stand_in = tmp_path / "systemctl"
        stand_in.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/asked\n{script}\n')
        stand_in.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        monkeypatch.setattr(units, "LASTING", tmp_path)
        return tmp_path / "asked"

    return make


def test_a_stop_returns_when_nothing_runs_although_systemd_has_not_noticed(systemctl):
    asked, looks = systemctl("exec sleep 600"), []

    def over():
        looks.append(asked.exists())
        return looks[-1]

    assert units.stop("digits-1", over) == ""
    assert asked.read_text() == "stop trainyard-digits-1.service\n" and looks[-1]


@pytest.mark.parametrize(
    ("said", "status", "complaint"),
    [
        ("Warning: unit changed", 0, ""),
        ("Failed to stop trainyard-digits-1.service: Unit trainyard-digits-1.service not loaded.", 5, ""),
        ("Failed to stop trainyard-digits-1.service: Connection timed out", 1, "Connection timed out"),
    ],
)
def test_complaints_of_systemd_about_a_stop(systemctl, said, status, complaint):
    systemctl(f"sleep 0.3; echo '{said}' >&2; exit {status}")
    found = units.stop("digits-1", lambda: False)
    assert found.endswith(complaint) and bool(found) == bool(complaint)


def test_a_unit_that_failed_does_not_stay_loaded(systemctl, tmp_path):
    asked = systemctl("sleep 0.1")
    (tmp_path / units.unit_name("digits-1")).touch()
    assert units.come_back("digits-1")
    assert units.stop("digits-1", lambda: True) == ""
    assert asked.read_text().splitlines()[-1] == "reset-failed trainyard-digits-1.service"
    assert not units.come_back("digits-1")
