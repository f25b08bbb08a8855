"""The main functions of the job modules, with real processes where they start some."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import pwd
import socket
import subprocess
import sys
import tarfile
import time
import uuid
from pathlib import Path

import findings as findings_module
import job_judge
import job_plan
import job_preflight
import job_process
import job_process_info
import job_report
import job_run_info
import pytest
from ansible.module_utils.testing import patch_module_args
from ansible.module_utils.trainyard_node import procs, units
from ansible.module_utils.trainyard_node.exits import write_json
from job_cluster import free_port, wait_for
from job_samples import job_file, make_job, make_plan, member, node_facts

ME = pwd.getpwuid(os.getuid()).pw_name


@pytest.fixture
def call(capsys):
    """Run a module and return its result; `failed` must be as its exit status says."""

    def run(module, **params):
        with patch_module_args(params), pytest.raises(SystemExit) as ended:
            module.main()
        result = json.loads(capsys.readouterr().out)
        assert (ended.value.code == 0) is not result.get("failed", False)
        return result

    return run


# ---- job_process and job_process_info


@pytest.fixture
def job(tmp_path, monkeypatch):
    """Parameters of job_process for a job on this machine, supervised without systemd."""
    monkeypatch.setattr(units, "SYSTEMD_RUNNING", tmp_path / "no-systemd")
    job_id = f"test-{uuid.uuid4().hex[:12]}"
    job_dir = tmp_path / "state" / "jobs" / job_id
    script = b"import os, pathlib, time\nprint('step 1 loss 0.5', os.environ['KEY'], flush=True)\n"
    script += b"while not pathlib.Path('go').exists():\n    time.sleep(0.05)\n"
    part = {
        "job_id": job_id,
        "job_dir": str(job_dir),
        "host": "n1",
        "node_rank": 0,
        "hosts": ["n1"],
        "head_host": "n1",
        "head_address": "127.0.0.1",
        "monitor_port": free_port(),
        "silent_after_s": 15,
        "timeout_s": 600,
        "world_size": 1,
        "progress_pattern": "step (?P<step>[0-9]+)",
        "rank_log": "rank_{rank}.log",
        "files": [],
        "devices": [],
        "processes": [
            {
                "name": "rank0",
                "ranks": [0],
                "argv": [sys.executable, "train.py"],
                "env": {"TRAINYARD_JOB_ID": job_id, "PATH": os.defpath},
                "log": str(job_dir / "logs" / "rank_0.log"),
            }
        ],
    }
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        info = tarfile.TarInfo("train.py")
        info.size = len(script)
        archive.addfile(info, io.BytesIO(script))
    yield {
        "job_id": job_id,
        "job_dir": str(job_dir),
        "slice": part,
        "source_archive": base64.b64encode(content.getvalue()).decode(),
        "secret_env": {"KEY": "hunter2"},
        "secret_files": {"tls/client.p12": base64.b64encode(b"a key").decode()},
        "token": "a token",
        "user": ME,
    }
    procs.end(job_id, grace_s=0.0)


def with_file(job, content, intended=None):
    """The job with a file that every node gets; `intended` is what the plan's digest is of."""
    path = f"{job['job_dir']}/rank_table.json"
    digest = hashlib.sha256((intended or content).encode()).hexdigest()
    return {**job, "files": [{"path": path, "content": content, "mode": "0644", "sha256": digest}]}


def test_files_of_all_nodes_are_there_before_anything_starts(call, job):
    call(job_process, **with_file(job, '{"größe": 1}\n'))
    folder = Path(job["job_dir"])
    assert (folder / "rank_table.json").read_text(encoding="utf-8") == '{"größe": 1}\n'
    # The whole content is not read again by each process.
    (written,) = json.loads((folder / "job.json").read_text())["files"]
    assert sorted(written) == ["mode", "path", "sha256"]
    call(job_process, **named(job, state="absent"))


def test_a_file_that_is_not_the_one_of_the_plan_stops_the_start_and_leaves_nothing(call, job):
    given = with_file(job, "{}", intended="{ }")
    found, expected = (hashlib.sha256(text).hexdigest() for text in (b"{}", b"{ }"))
    failed = call(job_process, **given)
    assert failed["msg"] == (
        f"{job['job_dir']}/rank_table.json has sha256 {found}, expected {expected}, as the plan and all other nodes "
        "have it: see whether its file system is full, or shared by nodes that need one of their own (trainyard_state)"
    )
    assert not Path(job["job_dir"]).exists() and procs.of_job(job["job_id"]) == []


def named(job, **changes):
    return {"job_id": job["job_id"], "job_dir": job["job_dir"], **changes}


def test_a_job_is_started_once_watched_stopped_and_removed(call, job, tmp_path):
    folder = tmp_path / "state" / "jobs" / job["job_id"]
    assert call(job_process_info, **named(job))["known"] is False

    assert call(job_process, **job, _ansible_check_mode=True)["changed"] is True
    assert not folder.exists()

    started = call(job_process, **job)
    assert (started["changed"], started["known"], started["monitor_alive"]) == (True, True, True)
    assert started["processes"] == [{"name": "rank0", "ranks": [0], "exit": None}]
    # What is secret is in one file that only the training user reads, and in no argument list.
    private = folder / "job.json"
    assert private.stat().st_mode & 0o777 == 0o600
    assert json.loads(private.read_text())["secret_env"] == {"KEY": "hunter2"}
    key = folder / "tls" / "client.p12"
    assert (key.read_bytes(), key.stat().st_mode & 0o777, key.parent.stat().st_mode & 0o777) == (b"a key", 0o600, 0o700)
    assert not any(b"hunter2" in procs.command_line(pid).encode() for pid in procs.of_job(job["job_id"]))

    assert call(job_process, **job)["changed"] is False
    assert call(job_process, **job, _ansible_check_mode=True)["changed"] is False

    running = wait_for(
        lambda: (
            (told := call(job_process_info, **named(job, logs=True)))
            and (told["cluster"] or {}).get("metrics")
            and told
        ),
        "the first step",
    )
    assert running["left"] == 2 and running["changed"] is False
    assert running["line"].endswith("1/1 ranks running   step 1")
    assert base64.b64decode(running["logs"]["rank_0.log"]) == b"step 1 loss 0.5 hunter2\n"
    assert "metrics.jsonl" in running["logs"]

    previewed = call(job_process, **named(job, state="stopped"), _ansible_check_mode=True)
    assert (previewed["changed"], previewed["monitor_alive"]) == (True, True)
    stopped = call(job_process, **named(job, state="stopped", logs=True, log_limit=10))
    assert (stopped["changed"], stopped["left"], stopped["monitor_alive"]) == (True, 0, False)
    assert stopped["cluster"]["end"]["state"] == "stopped"
    assert json.loads(private.read_text())["secret_env"] == {}
    assert not key.exists()
    assert (stopped["processes"][0]["exit"]["signal"], stopped["known"]) == (15, True)
    cut = base64.b64decode(stopped["logs"]["rank_0.log"]).decode()
    assert cut == f"[the first 14 bytes are in {folder}/logs/rank_0.log on the node]\n5 hunter2\n"
    assert call(job_process, **named(job, state="stopped"))["changed"] is False

    refused = call(job_process, **job)
    assert refused["msg"] == (f"{folder} is there already: expected a new job id; stop and remove that job first")
    assert folder.is_dir()

    assert call(job_process, **named(job, state="absent"), _ansible_check_mode=True)["changed"] is True
    assert folder.is_dir()
    assert call(job_process, **named(job, state="absent"))["changed"] is True
    assert not folder.exists()
    assert call(job_process, **named(job, state="absent"))["changed"] is False


def test_waiting_ends_with_the_job(call, job):
    call(job_process, **job)
    assert call(job_process_info, **named(job))["monitor"]["end"] is None
    Path(job["job_dir"], "source", "go").touch()
    told = call(job_process_info, **named(job, wait=90))
    assert told["cluster"]["end"]["state"] == "succeeded"
    assert told["processes"][0]["exit"]["exit_code"] == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source_archive": base64.b64encode(b"no archive").decode()}, "ReadError: file could not be opened"),
        ({"user": "no-such-user"}, "no user no-such-user: expected the training user; run site.yml"),
    ],
)
def test_a_job_that_cannot_be_started_leaves_nothing(call, job, changes, message):
    failed = call(job_process, **{**job, **changes})
    assert failed["msg"].startswith(message)
    assert not Path(job["job_dir"]).exists()
    assert procs.of_job(job["job_id"]) == []


def test_a_monitor_that_cannot_run_says_why(call, job):
    job["slice"]["progress_pattern"] = "("
    failed = call(job_process, **job)
    assert "the monitor ended before it reported: " in failed["msg"] and "unterminated subpattern" in failed["msg"]
    assert not Path(job["job_dir"]).exists()


def test_a_head_whose_port_was_taken_meanwhile_starts_nothing(call, job):
    with socket.create_server(("127.0.0.1", job["slice"]["monitor_port"])):
        failed = call(job_process, **job)
    assert "the monitor ended before it reported: " in failed["msg"] and "address already in use" in failed["msg"]
    assert not Path(job["job_dir"]).exists()
    assert procs.of_job(job["job_id"]) == []


# ---- job_plan


@pytest.fixture
def asked(tmp_path):
    source = tmp_path / "source"
    (source / "__pycache__").mkdir(parents=True)
    (source / "__pycache__" / "train.pyc").touch()
    (tmp_path / "shared.py").write_text("print('shared')\n")
    (source / "train.py").write_text("print('train')\n")
    (source / "shared.py").symlink_to(tmp_path / "shared.py")
    return {
        "job": job_file(source=str(source), launcher="direct"),
        "given": ["job_name", "job_command"],
        "nodes": [{"host": f"n{n + 1}", "address": f"10.77.0.{n + 1}", "facts": node_facts(n)} for n in (0, 1)],
        "runs_dir": str(tmp_path / "runs"),
        "state_dir": "/var/lib/trainyard",
        "available": 2,
    }


def test_a_plan_is_written_with_the_source(call, asked, tmp_path):
    made = call(job_plan, **asked)
    assert made["findings"] == [] and made["changed"] is True and made["text"] == ""
    run = tmp_path / "runs" / made["job_id"]
    assert made["run_dir"] == str(run)
    written = json.loads((run / "plan.json").read_text())
    assert written["job_id"] == made["job_id"] and written["world_size"] == 2
    assert {key: value for key, value in written.items() if key != "nodes"} == made["plan"]
    assert set(made["slices"]) == {"n1", "n2"}
    archive = base64.b64decode(made["source_archive"])
    assert (run / "source.tar.gz").read_bytes() == archive
    with tarfile.open(fileobj=io.BytesIO(archive)) as source:
        assert source.getnames() == ["shared.py", "train.py"]
        # A link to a file elsewhere on the controller travels as the file.
        assert source.extractfile("shared.py").read() == b"print('shared')\n"
        assert {info.uname for info in source} == {"root"}


def test_check_mode_shows_the_plan_and_two_runs_have_two_names(call, asked):
    previewed = call(job_plan, **asked, _ansible_check_mode=True)
    assert previewed["text"].startswith(f"Plan of {previewed['job_id']}: 2 ranks on 2 nodes, launcher direct\n")
    assert call(job_plan, **asked)["job_id"] != previewed["job_id"]


def test_of_plans_that_check_mode_made_the_last_one_stays(call, asked, tmp_path):
    started = call(job_plan, **asked)
    other = {**asked, "job": {**asked["job"], "job_name": f"{asked['job']['job_name']}-2"}}
    previews = [call(job_plan, **given, _ansible_check_mode=True) for given in (other, asked, asked, asked)]
    kept = {path.parent.name: json.loads(path.read_text())["check"] for path in tmp_path.glob("runs/*/plan.json")}
    assert kept == {started["job_id"]: False, previews[0]["job_id"]: True, previews[-1]["job_id"]: True}
    assert started["plan"]["asked_by"] == "launch.yml"


@pytest.mark.parametrize(
    ("changes", "check", "found"),
    [
        ({"available": 0}, "job_hosts", "no host in 'gpus'"),
        ({"job": {"job_nodes": 3}}, "job_nodes", "3 nodes asked for, 2 in group gpus"),
        ({"job": {"job_nodes": "two"}}, "job_nodes", "'two'"),
        ({"job": {"job_nodes": -1}}, "job_nodes", "-1"),
        ({"given": ["job_nmae"]}, "job file", "unknown variable job_nmae"),
        ({"job": {"job_source": "/nowhere"}}, "job_source", "no folder '/nowhere' on the controller"),
        ({"job": {"job_port": 1}}, "job_port", "1"),
    ],
)
def test_findings_are_returned_and_nothing_is_written(call, asked, tmp_path, changes, check, found):
    asked["job"].update(job_hosts="gpus", **changes.pop("job", {}))
    result = call(job_plan, **{**asked, **changes})
    assert [(item["check"], item["found"]) for item in result["findings"]] == [(check, found)]
    assert result["changed"] is False and "job_id" not in result
    assert not (tmp_path / "runs").exists()


def test_a_source_that_is_no_source(call, asked, tmp_path, monkeypatch):
    monkeypatch.setattr(job_plan, "MAX_SOURCE", 100)
    (tmp_path / "source" / "data.bin").write_bytes(os.urandom(1 << 20))
    (finding,) = call(job_plan, **asked)["findings"]
    assert (finding["check"], finding["found"]) == ("job_source", "1 MiB, packed")


def test_hosts_without_facts_are_left_out_where_limit_was_given(call, asked):
    del asked["nodes"][1]["facts"]
    result = call(job_plan, **asked, limit="n1,localhost", probed=True)
    assert [(item["host"], item["check"]) for item in result["findings"]] == [("n2", "limit")]
    assert result["probed"] is True
    # Not asked yet: then nothing is known of why.
    result = call(job_plan, **asked)
    assert ([item["check"] for item in result["findings"]], result["probed"]) == (["answer"], False)


def test_a_node_that_was_asked_and_said_nothing_is_a_finding(call, asked):
    del asked["nodes"][1]["facts"]
    result = call(job_plan, **asked, probed=True)
    assert [(item["host"], item["found"]) for item in result["findings"]] == [("n2", "no answer")]
    assert result["probed"] is True


def test_without_nodes_there_is_nobody_to_ask_again(call, asked):
    assert call(job_plan, **{**asked, "nodes": [], "available": 0})["probed"] is True


def test_findings_of_nodes_leave_slices_for_preflight(call, asked):
    asked["nodes"][1]["env"] = {"RANK": "1"}
    result = call(job_plan, **asked)
    assert [(item["host"], item["found"]) for item in result["findings"]] == [("n2", "RANK=1")]
    assert set(result["slices"]) == {"n1", "n2"}
    # A host variable of another type is one of them.
    asked["nodes"][0]["env"], asked["nodes"][1]["env"] = ["A=1"], None
    assert [(item["host"], item["found"]) for item in call(job_plan, **asked)["findings"]] == [("n1", "a list")]


def test_a_scheduler_as_launcher_is_told_how_it_is_written(call, asked):
    asked["job"]["job_launcher"] = "kubernetes"
    (finding,) = call(job_plan, **asked)["findings"]
    assert finding["action"] == "write job_scheduler: kubernetes and job_launcher: torchrun"


# ---- job_preflight, findings


def test_preflight_returns_findings_and_does_not_fail(call, tmp_path):
    part = make_plan(make_job(data=["/no/such/data"]), [member(0), member(1)]).slices([])["n1"]
    part = {**part, "head_address": "127.0.0.1", "port": free_port(), "monitor_port": free_port()}
    result = call(job_preflight, slice={**part, "job_dir": str(tmp_path / "jobs" / "x"), "venv": ""}, user=ME)
    assert "data" in [item["check"] for item in result["findings"]] and result["changed"] is False


@pytest.fixture
def judge(call, tmp_path):
    """Judge one fault of n1 and what `changes` say."""
    disk = {"host": "n1", "check": "disk", "found": "1 MiB", "expected": "more", "action": "make room"}
    good = {"findings": [], "stale": False, "programs": {}}
    given = {"planned": [], "hosts": ["n1", "n2"], "probed": True, "run_dir": str(tmp_path), "limit": ""}

    def run(faults, **changes):
        answers = [{**good, "findings": [disk] if faults else []}, {**good, **changes.pop("n2", {})}]
        return call(job_judge, **{**given, "answers": answers, **changes}), tmp_path / "findings.json"

    return run


def test_a_job_with_findings_cannot_run_and_is_known_as_never_started(judge):
    failed, record = judge(True, planned=[{"host": "", "check": "x", "found": "y", "expected": "z", "action": "a"}])
    assert failed["msg"].startswith("2 findings: the job cannot run, and nothing was started.\n\n  1. x\n")
    assert [item["check"] for item in json.loads(record.read_text())] == ["x", "disk"]


def test_a_job_without_findings_is_ready(judge):
    result, record = judge(False)
    assert (result["ready"], result["changed"], record.exists()) == (True, False, False)
    assert judge(False, hosts=[], answers=[])[0]["ready"] is True


@pytest.mark.parametrize(("faults", "n2"), [(True, {}), (False, {"stale": True}), (False, {"unreachable": True})])
def test_kept_facts_make_no_judgement_but_a_good_one(judge, faults, n2):
    result, record = judge(faults, n2=n2, probed=False)
    assert (result["ready"], record.exists()) == (False, False)
    assert judge(False, probed=False)[0]["ready"] is True
    # Asked just now, the nodes may have changed since: that is what they are, and the job can run on it.
    assert judge(False, n2={"stale": True})[0]["ready"] is True


def test_hosts_that_limit_left_out_are_judged_as_such(judge):
    failed, _ = judge(False, answers=[{"findings": []}, {}], limit="n1,localhost")
    assert "1. limit on n2\n     found     left out by --limit n1,localhost\n" in failed["msg"]


def test_findings_fail_with_one_text(call):
    assert call(findings_module, findings=[])["changed"] is False
    finding = {"host": "n1", "check": "disk", "found": "1 MiB", "expected": "more", "action": "make room"}
    failed = call(findings_module, findings=[finding], headline="{count} {findings} stop this job.")
    assert failed["msg"].splitlines() == [
        "1 finding stop this job.",
        "",
        "  1. disk on n1",
        "     found     1 MiB",
        "     expected  more",
        "     do        make room",
    ]


# ---- job_run_info, job_report


def a_run(folder, name, plan, age):
    (folder / name).mkdir(parents=True)
    (folder / name / "plan.json").write_text(plan if isinstance(plan, str) else json.dumps(plan))
    then = time.time() - age
    os.utime(folder / name / "plan.json", (then, then))


@pytest.fixture
def runs(tmp_path):
    folder = tmp_path / "runs"
    plan = make_plan(make_job(), [member(0), member(1)]).as_dict()
    for age, (name, job_id) in enumerate([("resnet", "resnet-1"), ("digits", "digits-2"), ("digits", "digits-1")]):
        a_run(folder, job_id, {**plan, "job_id": job_id, "job_name": name}, age * 100)
    a_run(folder, "half", '{"job_id": ', -100)
    a_run(folder, "other", "{}", -200)
    a_run(folder, "list", "[]", -300)
    return folder


@pytest.mark.parametrize(
    ("asked", "job_id"),
    [
        ({}, "resnet-1"),
        ({"job_name": "digits"}, "digits-2"),
        ({"job_id": "digits-1"}, "digits-1"),
        ({"job_id": "digits-1", "job_name": "digits"}, "digits-1"),
    ],
)
def test_the_run_that_is_meant(call, runs, asked, job_id):
    found = call(job_run_info, runs_dir=str(runs), **asked)
    assert found["run"] == {
        "job_id": job_id,
        "job_dir": "/var/lib/trainyard/jobs/digits-20261120-101500",
        "head": "n1",
        "hosts": ["n1", "n2"],
        "over": False,
        "rejoin_s": 0,
    }


@pytest.mark.parametrize(("asked", "wanted"), [({"job_id": "x"}, "x"), ({"job_name": "x"}, "of job x")])
def test_a_run_that_is_not_there(call, runs, asked, wanted):
    message = call(job_run_info, runs_dir=str(runs), **asked)["msg"]
    assert wanted in message
    assert message.endswith("The newest runs there: digits-1, digits-2, resnet-1. Name one with -e job_id=NAME.")


@pytest.mark.parametrize(
    ("asked", "check", "found"),
    [
        ({"must_name": True}, "which job", "neither job_id nor job_name"),
        (
            {"job_id": "digits-1", "job_name": "resnet"},
            "job_id and job_name",
            "digits-1 is a run of digits, and job_name is resnet",
        ),
    ],
)
def test_a_run_is_not_guessed(call, runs, asked, check, found):
    lines = call(job_run_info, runs_dir=str(runs), **asked)["msg"].splitlines()
    assert lines[0] == "1 finding: no job was chosen, and nothing was touched."
    assert lines[2:4] == [f"  1. {check}", f"     found     {found}"]


def test_what_a_playbook_ran_for_itself_is_never_the_newest(call, runs):
    plan = json.loads((runs / "digits-1" / "plan.json").read_text())
    own = {"job_name": "all-gather-pytorch", "asked_by": "collective_check.yml"}
    a_run(runs, "all-gather-pytorch-1", {**plan, "job_id": "all-gather-pytorch-1", **own}, -400)
    assert call(job_run_info, runs_dir=str(runs))["run"]["job_id"] == "resnet-1"
    named = call(job_run_info, runs_dir=str(runs), job_id="all-gather-pytorch-1", must_name=True)
    assert named["run"]["job_id"] == "all-gather-pytorch-1"
    said = call(job_run_info, runs_dir=str(runs), job_name="all-gather-pytorch")["msg"]
    assert "The newest runs there: digits-1, digits-2, resnet-1. Playbooks ran for themselves, and are found" in said
    assert said.endswith("job_id alone: all-gather-pytorch-1. Name one with -e job_id=NAME.")
    (runs / "resnet-1" / "summary.json").write_text(json.dumps({"state": "failed", "nodes": []}))
    assert call(job_run_info, runs_dir=str(runs), job_name="resnet")["run"]["over"] is True


def test_no_run_at_all(call, tmp_path):
    assert "The newest runs there: none." in call(job_run_info, runs_dir=str(tmp_path / "nowhere"))["msg"]


@pytest.fixture
def failed_run(tmp_path):
    run = tmp_path / "digits-1"
    (run / "logs").mkdir(parents=True)
    (run / "plan.json").write_text(json.dumps(make_plan(make_job(launcher="direct"), [member(0)]).as_dict()))
    (run / "logs" / "rank_0.log").write_text("".join(f"line {number}\n" for number in range(40)))
    series = [{"elapsed_s": step, "step": step, "loss": 1 / step} for step in range(1, 5)]
    text = "".join(json.dumps(point) + "\n" for point in series)
    (run / "metrics.jsonl").write_text(text + '{"elapsed_s": 5, "loss": NaN}\n{"elapsed_s": 6, "lo')
    failure = {
        "kind": "exit",
        "host": "n1",
        "process": "rank0",
        "rank": 0,
        "ranks": [0],
        "exit_code": 7,
        "signal": None,
        "result": "exit-code",
    }
    end = {"state": "failed", "finished": 1010.0, "failure": failure}
    cluster = {"started": 1000.0, "elapsed_s": 10.0, "ranks_running": 0, "world_size": 1, "end": end}
    cluster["metrics"] = {"step": 5.0, "loss": float("nan")}
    result = {"known": True, "monitor_alive": False, "processes": [], "monitor": None, "cluster": cluster, "left": 0}
    return run, {"n1": result}


def test_a_report_has_summary_loss_curve_and_the_end_of_the_log(call, failed_run):
    run, results = failed_run
    report = call(job_report, run_dir=str(run), results=results)
    assert (report["state"], report["left"], report["changed"]) == ("failed", [], True)
    summary = json.loads((run / "summary.json").read_text())
    assert summary["failure"]["exit_code"] == 7 and summary["metrics"] == {"step": 5.0, "loss": None}
    assert (run / "loss.png").read_bytes().startswith(b"\x89PNG")
    content = (run / "report.html").read_text()
    assert 'id="curve-0"' in content and "exit code 7" in content and "loss is not a number since 0:00:05" in content
    assert [line for line in report["text"].splitlines() if "    | " in line] == [
        f"    | line {number}" for number in range(25, 40)
    ]
    assert "last progress: step 5   loss is not a number" in report["text"]


def test_a_report_in_check_mode_writes_nothing(call, failed_run):
    run, results = failed_run
    before = sorted(run.iterdir())
    report = call(job_report, run_dir=str(run), results=results, _ansible_check_mode=True)
    assert (report["changed"], report["state"]) == (False, "failed")
    assert sorted(run.iterdir()) == before


def test_loss_is_drawn_over_time_where_steps_begin_again(tmp_path):
    series = [{"elapsed_s": n, "step": n % 3, "loss": 1.0 / (n + 1)} for n in range(9)]
    assert job_report.draw_loss(series, "digits-1", tmp_path / "loss.png") is True
    assert job_report.draw_loss(series[:1], "digits-1", tmp_path / "none.png") is False
    assert job_report.draw_loss([{"elapsed_s": 1, "step": n} for n in range(3)], "x", tmp_path / "none.png") is False
    assert not (tmp_path / "none.png").exists()


def test_a_run_whose_node_did_not_answer_is_reported(call, failed_run):
    run, _ = failed_run
    lost = {"unreachable": True, "msg": "timed out"}
    report = call(job_report, run_dir=str(run), results={}, unreachable={"n1": lost})
    assert (report["state"], report["left"]) == ("lost", ["n1"])


def test_monitors_of_other_programs_are_no_monitors(call, job, tmp_path):
    folder = tmp_path / "state" / "jobs" / job["job_id"]
    folder.mkdir(parents=True)
    with subprocess.Popen(["sleep", "600"]) as other:
        write_json(folder / "job.json", {**job["slice"], "supervision": "children"})
        write_json(folder / "monitor.json", {"pid": other.pid, "start_time": 1})
        told = call(job_process, **named(job, state="stopped"))
        assert (told["changed"], told["monitor_alive"]) == (False, False)
        assert other.poll() is None
        other.kill()
