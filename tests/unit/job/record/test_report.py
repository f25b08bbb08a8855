"""Texts for users: findings before a job, and how a job ended, for each state and each kind of failure."""

import json

import pytest
from ansible.module_utils.trainyard.base.findings import Finding, host_list, render
from ansible.module_utils.trainyard.job.run.measure import slow_ranks
from ansible.module_utils.trainyard.report import job_text, log_end
from job_samples import make_job, make_plan, member, summary_of
from test_slow_ranks import NAMED


def test_sigkill_of_a_pod_names_kubectl():
    failure = {"kind": "exit", "host": "d-0", "process": "rank0", "rank": 0, "ranks": [0], "signal": 9}
    summary = {"failure": failure, "nodes": [{"host": "d-0", "ranks": [0]}], "engine": {"kind": "kubernetes"}}
    assert "(kubectl describe pod d-0 tells)" in job_text.cause(summary, "")[1]


def finding(host, check, found, expected, action):
    return Finding(host=host, check=check, found=found, expected=expected, action=action)


def test_findings_name_each_fault_once_with_all_its_hosts():
    port = finding("n1", "rendezvous port", "29500 is in use by sshd (pid 12)", "a free TCP port", "set job_port: auto")
    disk = [finding(f"n{n}", "disk", f"{n} MiB free in /", "at least 10 MiB", "make room") for n in (1, 2)]
    lost = ("python", "no /v/bin/python", "the job's environment", "run site.yml")
    source = Finding(check="job_source", found="no folder 'x'", expected="the scripts", action="correct job_source")
    faults = [disk[0], port, disk[1], source, *(finding(f"n{n}", *lost) for n in range(9))]
    lines = render(faults, "{count} {findings}:").splitlines()
    assert (lines[0], lines[2:7]) == ("4 findings:", [
        "  1. disk on n1, n2",
        "     found     n1: 1 MiB free in /",
        "               n2: 2 MiB free in /",
        "     expected  at least 10 MiB",
        "     do        make room",
    ])  # fmt: skip
    others = [line[2:] for line in lines if line.startswith(("  2", "  3", "  4"))]
    assert others == ["2. rendezvous port on n1", "3. job_source", "4. python on n0 to n8"]


def test_a_finding_survives_its_way_through_a_module():
    given = finding("n1", "disk", "1 MiB", "more", "make room")
    assert Finding.from_dict(json.loads(json.dumps(given.as_dict()))) == given
    with pytest.raises(KeyError):
        Finding.from_dict({"host": "n1"})


@pytest.mark.parametrize(
    ("hosts", "text"),
    [
        ([f"gpu{n:02d}" for n in range(1, 17)], "gpu01 to gpu16"),
        ([f"n{n}.site.example" for n in range(8, 13)], "n8.site.example to n12.site.example"),
        ([f"192.0.2.{n}" for n in range(9, 13)], "192.0.2.9 to 192.0.2.12"),
        # Three names are as short as a span of them.
        (["n1", "n2", "n3"], "n1, n2, n3"),
        (["n1", "n2", "n3", "n4", "n6", "m7"], "n1 to n4, n6, m7"),
        # In the inventory's order, and in one number of the name.
        (["n4", "n3", "n2", "n1"], "n4, n3, n2, n1"),
        (["r1n1", "r1n2", "r2n2", "r3n2"], "r1n1, r1n2, r2n2, r3n2"),
        (["r1n1", "r2n1", "r3n1", "r4n1"], "r1n1 to r4n1"),
        (["n8", "n9", "n010", "n011", "n10", "n11"], "n8, n9, n010, n011, n10, n11"),
        ([f"n{n}" for n in range(0, 20, 2)], "n0, n2, n4, n6, n8, n10, ... (4 more)"),
        ([f"n{n}" for n in range(0, 20, 2)] + [f"m{n}" for n in range(100)], "n0, n2, n4, n6, n8, n10, ... (104 more)"),
    ],
)
def test_hosts_with_numbers_one_after_the_other_are_a_span(hosts, text):
    assert host_list(hosts) == text


# ---- how a job ended


RUN, DIR = "runs/digits-20261120-101500", "/var/lib/trainyard/jobs/digits-20261120-101500"
JOB = "digits-20261120-101500"


def plan(launcher="direct"):
    """Two nodes with two ranks each."""
    return make_plan(make_job(launcher=launcher, ranks_per_node=2), [member(0), member(1)]).as_dict()


def answer(number, *, end=None, cluster=None, left=0, alive=False, exits=(), launcher="direct"):
    """What job_process_info says on node `number`."""
    processes = plan(launcher)["nodes"][number - 1]["processes"]
    found = [{"name": process["name"], "ranks": process["ranks"], "exit": None} for process in processes]
    for process, how in zip(found, exits):
        process["exit"] = how
    node = {"known": True, "monitor_alive": alive, "left": left, "processes": found, "cluster": cluster}
    return {**node, "monitor": {"started": 1000.5, "end": end, "ranks_running": 2}}


def head_says(end, metrics=None, running=0):
    metrics = {"step": 40.0, "loss": 0.25} if metrics is None else metrics
    head = {"started": 1000.0, "elapsed_s": 72.5, "world_size": 4, "ranks_running": running}
    return {**head, "metrics": metrics, "end": end}


def explained(results, *, unreachable=None, not_started=None, tail=(), launcher="direct"):
    summary = summary_of(plan(launcher), results, unreachable, not_started)
    json.dumps(summary)
    return summary, job_text.explain(summary, RUN, DIR, tail).splitlines()


def ended(**changes):
    """How rank 3 on n2 ended, where nothing else is said."""
    record = {"kind": "exit", "host": "n2", "process": "rank3", "rank": 3, "ranks": [3]}
    return {**record, "exit_code": 1, "signal": None, "result": "exit-code", **changes}


FOLDER = f"  folder      {DIR} on n1, n2; files of the script are in its source/"
LAST = (FOLDER, f"  logs        {RUN}/logs", f"  summary     {RUN}/summary.json", f"  report      {RUN}/report.html")


def both(end, **changes):
    return {"n1": answer(1, end=end, cluster=head_says(end), **changes), "n2": answer(2, end=end, **changes)}


def test_a_job_that_succeeded():
    well = {"exit_code": 0, "signal": None, "result": "success", "time": 1070.0}
    summary, lines = explained(both({"state": "succeeded", "finished": 1072.5}, exits=(well, well)), tail=["done"])
    assert lines == [
        f"Job {JOB} succeeded in 0:01:12: 4 ranks on 2 nodes.",
        "  last progress: step 40   loss 0.25",
        f"  last lines of {DIR}/logs/rank_0.log on n1:",
        "    | done",
        *LAST,
    ]
    assert (summary["state"], summary["elapsed_s"], summary["failure"]) == ("succeeded", 72.5, None)
    processes = [{"name": f"rank{rank}", "ranks": [rank], "log": f"rank_{rank}.log", **well} for rank in (2, 3)]
    node = {"host": "n2", "node_rank": 1, "state": "ended", "why": "", "ranks": [2, 3], "carried": None}
    assert summary["nodes"][1] == {**node, "processes": processes}


AGENT = {"process": "agent", "ranks": [2, 3], "rank": None}
KILLED = {"exit_code": None, "signal": 9, "result": "signal"}
SILENT = {"kind": "silent", "host": "n2", "after_s": 16}
EXCLUDED = {"kind": "excluded", "host": "n2", "reason": "disk: 3 MiB free"}
UNFIT = "n2 did not pass the health check for the restart"
OUTSIDE, OOM = "SIGKILL comes from outside: mostly the", "the kernel's OOM killer ended it: more memory,"
# How each line of the cause begins.
FAILURES = [
    (ended(exit_code=7), ["rank 3 on n2 failed first: exit code 7"]),
    (ended(**{**KILLED, "result": "oom-kill"}), ["rank 3 on n2 failed first: killed by SIGKILL (oom-kill)", OOM]),
    (ended(**KILLED), ["rank 3 on n2 failed first: killed by SIGKILL", OUTSIDE]),
    (ended(exit_code=137), ["rank 3 on n2 failed first: exit code 137", "exit code 137 is SIGKILL, which comes from"]),
    (ended(**AGENT), ["torchrun's agent of ranks 2, 3 on n2 failed first: exit code 1"]),
    (ended(**AGENT, **KILLED), ["torchrun's agent on n2 was killed by SIGKILL, and ranks 2, 3 ended", OUTSIDE]),
    (SILENT, ["node n2 with ranks 2, 3 went silent: no report for 16 s,", "its own monitor ends ranks 2, 3 as soon"]),
    (
        {**SILENT, "hosts": ["n1", "n2"], "least_s": 15},
        ["nodes n1, n2 with ranks 0 to 3 went silent: no report for 15 to 16 s,", "their monitors end ranks 0 to 3"],
    ),
    ({"kind": "frozen", "host": "n1", "after_s": 20}, ["head node n1 was suspended for 20 s", "check the machine"]),
    ({**EXCLUDED, "after_s": None}, [f"{UNFIT}: disk: 3 MiB free", "repair it, or leave it out (job_hosts);"]),
    ({**EXCLUDED, "after_s": 300}, [f"{UNFIT} within 300 s (job_rejoin_timeout): disk: 3 MiB free", "repair it,"]),
    (
        {"kind": "absent", "host": "n2", "after_s": 120},
        ["node n2 never reported to the head within 120 s of the start", f"read {DIR}/logs/monitor_*.log on n2, and"],
    ),
]


@pytest.mark.parametrize(("failure", "lines"), FAILURES)
def test_a_job_that_failed(failure, lines):
    process = failure.get("process")
    log = {"rank3": "rank_3.log", "agent": "agent_1.log"}.get(process)
    launcher = "torchrun" if process == "agent" else "direct"
    end = {"state": "failed", "finished": 1072.5, "failure": failure}
    tail = ["Traceback", "Error"] if log else []
    summary, text = explained(both(end, launcher=launcher), tail=tail, launcher=launcher)
    assert log_end.telling_log(summary) == log
    assert text[0] == f"Job {JOB} failed after 0:01:12."
    assert [found[: len(line) + 2] for found, line in zip(text[1:], lines)] == [f"  {line}" for line in lines]
    assert text[len(lines) + 1 :] == [
        "  last progress: step 40   loss 0.25",
        *([f"  last lines of {DIR}/logs/{log} on n2:", "    | Traceback", "    | Error"] if log else []),
        "  no process of the job is left on n1, n2",
        *LAST,
    ]


def test_the_error_of_the_rank_that_failed_comes_first():
    end = {"state": "failed", "finished": 1072.5, "failure": ended(process="rank3", rank=3, ranks=[3])}
    tail = [
        "[rank3]: Traceback (most recent call last):",
        '[rank3]:   File "/train.py", line 7',
        "[rank3]: ValueError: 4711",
    ]
    _, text = explained(both(end, launcher="direct"), tail=tail, launcher="direct")
    assert text[1] == "  rank 3 on n2 failed first: exit code 1, ValueError: 4711"


def test_an_address_in_an_error_of_mpirun_gets_its_host():
    error = "ssh: connect to host {} port 22: No route to host; not 10.77.0.22, 110.77.0.2"
    failure = ended(host="n1", process="rank0", rank=None, ranks=[0, 1, 2, 3], reason=error.format("10.77.0.2"))
    _, text = explained(both({"state": "failed", "finished": 1072.5, "failure": failure}))
    assert text[2] == "  " + error.format("n2 (10.77.0.2)")


def test_a_head_that_went_silent():
    failure = {"kind": "head_silent", "host": "n1", "seen_by": "n2", "after_s": 15}
    gone = {"state": "failed", "finished": 1072.5, "failure": failure}
    summary, text = explained({"n2": answer(2, end=gone)}, unreachable={"n1": "Connection timed out"})
    assert text[1] == "  head node n1 went silent: n2 received no report from it for 15 s"
    assert text[3:] == ["  no process of the job is left on n2", "  n1 could not be asked: Connection timed out", *LAST]
    assert summary["nodes"][0]["state"] == "unreachable"
    # The cause is more than that a user stopped it.
    results = {"n1": answer(1, end={"state": "stopped", "finished": 1060.0}), "n2": answer(2, end=gone)}
    assert summary_of(plan(), results)["failure"] == failure


def test_a_job_that_runs():
    head = answer(1, cluster=head_says(None, running=4), left=3, alive=True)
    results = {"n1": head, "n2": answer(2, left=3, alive=True)}
    summary, text = explained(results, tail=["step 40"])
    assert text == [
        f"Job {JOB} is running.",
        "  0:01:12   4/4 ranks running   step 40   loss 0.25",
        f"  last lines of {DIR}/logs/rank_0.log on n1:",
        "    | step 40",
        *LAST,
    ]
    assert [node["state"] for node in summary["nodes"]] == ["running", "running"]


def test_a_lost_job():
    nothing = {"known": False, "monitor_alive": False, "processes": [], "monitor": None, "cluster": None, "left": 0}
    summary, text = explained({"n1": nothing, "n2": nothing})
    assert text[0] == f"Job {JOB} is lost: no node knows of it any more." and summary["state"] == "lost"
    _, text = explained({"n1": nothing}, unreachable={"n2": ""})
    assert text[0] == f"Job {JOB} is lost: no node that could be asked tells whether it still runs."
    _, text = explained({}, unreachable={"n1": "", "n2": ""})
    assert text[0] == f"Job {JOB} is lost: none of its nodes could be asked."
    assert text[1:] == ["  n1 could not be asked: no answer", "  n2 could not be asked: no answer", *LAST]
    # Processes of a job that renamed its folder.
    summary, text = explained({"n1": nothing, "n2": {**nothing, "left": 3}})
    assert text[0].startswith(f"Job {JOB} is lost: its processes run, but no monitor of it is known")
    assert text[2] == f"  STILL RUNNING on n2: ansible-playbook playbooks/stop.yml -e job_id={JOB}"
    assert summary["state"] == "lost"


def test_the_stacks_of_a_hang_are_in_the_record_alone():
    group = {"text": "rank 1 on n1 sleeps", "odd": True, "ranks": [1], "hosts": ["n1"], "frames": [], "problem": "x"}
    taken = {"time": 1050.0, "groups": [group], "more": 0}
    end = {"state": "succeeded", "finished": 1072.5}
    summary, lines = explained({"n1": answer(1, cluster={**head_says(end), "stacks": taken}), "n2": answer(2)})
    assert summary["stacks"] == taken and not any("sleeps" in line for line in lines)
    assert explained({"n1": answer(1, cluster=head_says(end)), "n2": answer(2)})[0]["stacks"] is None


def test_a_slow_rank_is_in_the_report():
    end = {"state": "succeeded", "finished": 1072.5}
    results = {"n1": answer(1, cluster={**head_says(end), "slow_ranks": [NAMED]}), "n2": answer(2)}
    summary, lines = explained(results)
    assert summary["slow_ranks"] == [NAMED]
    at = lines.index(f"  {slow_ranks.slow_rank_text(NAMED)}")
    assert lines[at + 1 : at + 3] == [f"    {line}" for line in slow_ranks.details(NAMED)]
