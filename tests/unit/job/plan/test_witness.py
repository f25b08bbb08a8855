"""A witness: its part in the plan, the jobs that cannot have one, and what it is asked and sent."""

import os
import pwd
import socket
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.job.plan import log_names
from ansible.module_utils.trainyard.job.plan.plan import describe, node_plans
from ansible.module_utils.trainyard.job.plan.spares import all_hosts, hosts
from ansible.module_utils.trainyard.job.record.job_runs import SavedRun
from ansible.module_utils.trainyard.job.run.lead.succession import Caller, voters, wins
from ansible.module_utils.trainyard.job.run.wire.answers import checked, of_job
from ansible.module_utils.trainyard.job.schedulers import ssh
from ansible.module_utils.trainyard_controller.job import cleaning, planning
from ansible.module_utils.trainyard_controller.job.collecting import Request, collect
from ansible.module_utils.trainyard_node import agent
from ansible.module_utils.trainyard_node.job.plan.obstacles import witness_findings
from ansible.module_utils.trainyard_node.job.run.ranks import process_table, units
from ansible.module_utils.trainyard_node.machine.as_user import JobError
from ansible.module_utils.trainyard_node.machine.json_files import write_json
from job_cluster import free_port
from job_samples import briefly, job_file, make_job, make_plan, make_request, member, node_facts, wrong
from job_samples import planned as planned_with
from simulated_job import SimulatedJob
from test_new_head import started

ME = pwd.getpwuid(os.getuid()).pw_name
TWO = {"launcher": "direct", "max_restarts": 1}
NOTHING = {"packages", "program", "scripts", "starter", "module", "source_files", "ssh_peers", "entry", "fingerprint",
           "program_path"}  # fmt: skip


def planned(nodes=2, witness="w", **job):
    given = {"witness": witness} if witness else {}
    return make_plan(make_job(**{**TWO, **given, **job}), [member(number) for number in range(nodes)])


def test_of_two_nodes_with_a_witness_both_may_lead():
    assert planned(witness="").as_dict()["candidates"] == []
    plan = planned().as_dict()
    assert plan["candidates"] == ["n1", "n2"] and plan["witness"] == {"host": "w", "node_rank": 2}
    assert hosts(plan) == ["n1", "n2"] and all_hosts(plan) == ["n1", "n2", "w"]
    assert describe(plan).splitlines()[-2] == "  w  only votes when the head is lost (job_witness)"


@pytest.mark.parametrize("job", [{}, {"spares": 1}, {"min_nodes": 2}, {"checkpoints": "saved", "packages": ["torch"]}])
def test_the_plan_of_all_others_is_the_one_without_a_witness(job):
    job = {key: value for key, value in job.items() if key != "packages"}
    with_one, without = planned(4, **job), planned(4, witness="", **job)
    plan = with_one.as_dict()
    assert plan.pop("witness") == {"host": "w", "node_rank": 4} and plan == without.as_dict()
    sent, others = with_one.node_plans([]), without.node_plans([])
    assert list(sent) == [*others, "w"]
    for host, own in others.items():
        assert sent[host] == {**own, "witness": "w"}
    # Nothing of the nodes is checked there.
    assert not NOTHING & sent["w"].keys() and sent["n1"].keys() >= NOTHING


def test_only_hosts_that_may_lead_know_the_witness():
    sent = planned(7).node_plans([])
    assert [host for host, own in sent.items() if "witness" in own] == ["n1", "n2", "n3", "n4", "n5", "w"]


def test_a_witness_runs_nothing_and_knows_only_the_hosts_that_may_lead():
    own = node_plans(planned(4, min_nodes=2, data=["/data/a"], metrics_folder="/metrics", checkpoints="x").as_dict())[
        "w"
    ]
    assert own["candidates"] == [[f"n{number}", f"10.77.0.{number}"] for number in range(1, 5)]
    empty = ("hosts", "ranks", "processes", "files", "devices", "data", "events", "addresses", "ranks_of")
    assert not any(
        own[name] for name in (*empty, "health_gate", "min_disk_mib", "metrics_folder", "checkpoints", "venv")
    )
    assert (own["host"], own["witness"], own["node_rank"]) == ("w", "w", 4) and not {"places", "fewer"} & own.keys()


def test_one_node_and_one_spare_are_enough_with_a_witness():
    assert planned(2, spares=1).as_dict()["candidates"] == ["n1", "n2"]
    job = make_job(**TWO, witness="w")
    assert briefly(planned_with(job, [member(0)])[1]) == [("", "job_witness", "n1 alone beside it")]


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"max_restarts": 0}, "w with job_max_restarts: 0"),
        ({"scheduler": "slurm"}, "w with job_scheduler: slurm, which restarts jobs itself"),
        ({"scheduler": "kubernetes", "image": "a"}, "w with job_scheduler: kubernetes, which restarts jobs itself"),
    ],
)
def test_jobs_whose_head_is_never_replaced_have_no_witness(changes, found):
    findings = wrong(**{**TWO, **changes}, witness="w")
    assert [each.found for each in findings if each.check == "job_witness"] == [found]


# ---- before the start


@pytest.fixture
def prepare(tmp_path):
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "train.py").touch()
    names = ("n1", "n2")
    facts = {
        host: {**node_facts(number), **dict.fromkeys(("boot_id", "container", "npu", "mpi")), "fingerprint": "a"}
        for number, host in enumerate(names)
    }

    def launch(witness, answer=None, known=(*names, "w"), **changes):
        asked = []

        def ask(question, own):
            asked.append((question, list(own)))
            good = {"findings": [], "programs": {}, "stale": False}
            if question == "probe":
                return {host: {"node": facts[host]} for host in own}
            return {host: answer or good if host == "w" else good for host in own}

        given = job_file(**TWO, source=str(tmp_path / "source"), witness=witness)
        found = [planning.Host(host, f"10.77.0.{number}") for number, host in enumerate(names, 1)]
        return planning.prepare(make_request(tmp_path, given, found, known=known, **changes), ask), asked

    return launch


def test_a_witness_is_not_probed_and_checks_its_part(prepare):
    made, asked = prepare("w")
    assert made.findings == [] and made.plan["witness"]["host"] == "w"
    assert asked == [("probe", ["n1", "n2"]), ("preflight", ["n1", "n2", "w"])]
    # The facts of the nodes are cached now.
    made, asked = prepare("w")
    assert made.findings == [] and asked == [("preflight", ["n1", "n2", "w"])]


@pytest.mark.parametrize(
    ("witness", "found"),
    [("n2", "n2, which is a node or a spare of the job"), ("n9", "n9, which is not in the inventory")],
)
def test_a_witness_that_is_unknown_or_takes_part_is_refused_before_it_is_visited(prepare, witness, found):
    made, asked = prepare(witness)
    assert briefly(made.findings) == [("", "job_witness", found)] and made.run_dir is None
    assert asked[-1] == ("preflight", ["n1", "n2"])


@pytest.mark.parametrize("cached", [False, True])
def test_a_witness_that_does_not_answer_keeps_the_job_from_starting(prepare, cached):
    if cached:
        prepare("w")
    made, _ = prepare("w", {"unreachable": True, "msg": "Connection timed out"})
    assert [(finding.host, finding.check) for finding in made.findings] == [("w", "reach")]
    made, _ = prepare("w", {"failed": True, "msg": "no sudo"})
    assert [finding.host for finding in made.findings] == ["w"]


def test_a_witness_finds_that_it_reaches_no_candidate_or_lacks_the_user():
    port = free_port()
    node_plan = {"host": "w", "witness": "w", "monitor_port": port, "candidates": [["n1", "127.0.0.1"]]}
    assert witness_findings(node_plan, ME) == []
    with socket.create_server(("127.0.0.1", port)):
        assert witness_findings(node_plan, ME) == []
    node_plan["candidates"].append(["n2", "no.such.host.invalid"])
    answer = checked("preflight", agent.preflight(node_plan=node_plan, user="no-such-user"), "w")
    assert [(each["host"], each["check"]) for each in answer["findings"]] == [("w", "user"), ("w", "job_witness")]
    assert answer["findings"][1]["found"].startswith(f"no.such.host.invalid:{port}: ")


# ---- while the job runs, and after it


def test_a_witness_votes_and_is_no_part_of_the_job_otherwise():
    candidates = [["n1", "127.0.0.1"], ["n2", "127.0.0.2"]]
    job = SimulatedJob(2, candidates=candidates, witness="w", max_restarts=3).run(5)
    copy, vote = job.state.copy(), {"w": Caller({}, 0, job.now)}
    assert voters(copy["restarts"], "w") == {"n1", "n2", "w"}
    assert wins("n2", copy, vote, job.now, 15, "w") and not wins("n2", copy, {}, job.now, 15, "w")
    job.state.receive("w", {"stopped": True}, job.time())
    assert not job.run(5).end
    # Without one, a host that no plan names has no vote.
    assert not wins("n2", copy, vote, job.now, 15)


def answer(host, state="succeeded", **changes):
    end = {"state": state, "finished": 1009.0, **changes}
    monitor = {"started": 1000.0, "end": end, "follows": "n1", "term": 0}
    found = {"known": True, "monitor_alive": False, "processes": [], "monitor": monitor, "cluster": None, "left": 0}
    log = {f"monitor_{int(host[1:] or 3) - 1}.log": "YQ=="}
    return {"changed": False, **found, "logs": log}


def test_a_witness_is_collected_and_stopped_like_any_host(tmp_path):
    plan = planned().as_dict()
    (tmp_path / "logs").mkdir()
    asked = {}

    def ask(question, own, limit_s):
        asked.update(own)
        return {host: answer(host) for host in own}

    found = collect(plan, tmp_path, ask, Request(1, stop=True))
    assert list(asked) == ["n1", "n2", "w"] and "warnings" not in found
    assert (tmp_path / "logs/monitor_2.log").read_text() == "a"
    nodes = ssh.state(plan, found["answers"], {}, {})["nodes"]
    assert [(node["host"], node["role"], node["state"]) for node in nodes][2] == ("w", "witness", "ended")
    # Another host brings no log under that name.
    logs, others = log_names.take_logs(plan, {"n2": {"logs": {"monitor_2.log": "YQ=="}}})
    assert logs == {"n2": {}} and others


def test_a_witness_that_still_waits_keeps_no_job_running():
    """All nodes have given up; the witness still waits for them."""
    plan, failure = planned().as_dict(), {"kind": "no_majority", "host": "n2", "after_s": 20}
    lost = answer("n2", "failed", failure=failure)
    waits = {**answer("w"), "monitor_alive": True, "monitor": {"started": 1000.0, "end": None, "follows": ""}}
    state = ssh.state(plan, {"n2": lost, "w": waits}, {"n1": "off"}, {})
    assert (state["state"], state["failure"]) == ("failed", failure)
    assert ssh.state(plan, {"w": waits}, {"n1": "off", "n2": "off"}, {})["state"] == "lost"


def test_the_answer_of_a_witness_names_hosts_of_the_plan():
    plan = planned().as_dict()
    assert of_job(plan, answer("w")) == answer("w")
    forged = {**answer("w"), "monitor": {**answer("w")["monitor"], "follows": "n9"}}
    assert of_job(plan, forged)["failed"]
    assert SavedRun.of_job("a", 1.0, 1, plan, True, None).open_hosts == ("n1", "n2", "w")


def test_clean_visits_the_witness_of_a_job_until_its_folder_is_gone(tmp_path):
    plan = planned().as_dict()
    (tmp_path / plan["job_id"]).mkdir()
    write_json(tmp_path / plan["job_id"] / "plan.json", plan)
    asked = []

    def ask(question, own, limit_s=1.0):
        asked.append(list(own))
        return {host: {"folders": []} for host in own}

    request = cleaning.Request(["n1", "n2"], ["n1", "n2", "w"], tmp_path, tmp_path, "", 30.0, False, False)
    cleaning.plan(request, ask, 1e10)
    write_json(tmp_path / plan["job_id"] / "removed.json", {"hosts": {"w": 1.0}})
    cleaning.plan(request, ask, 1e10)
    assert asked == [["n1", "n2", "w"], ["n1", "n2"]]


def test_a_witness_gets_no_files_and_no_secrets(tmp_path):
    plan = planned(4).as_dict()
    plan["files"] = [{"path": "/x/hostfile"}]
    (tmp_path / "source.tar.gz").write_bytes(b"source")
    with ProcessPoolExecutor(1, mp_context=get_context("fork")) as process:
        sent = process.submit(started, tmp_path, plan).result()
    assert list(sent) == ["n1", "n2", "n3", "n4", "w"] and sent["w"]["node_plan"]["processes"] == []
    private = ("files", "source_archive", "secret_env", "secret_files")
    assert not any(sent["w"][name] for name in private) and all(sent["n4"][name] for name in private)
    assert sent["w"]["token"] == sent["n1"]["token"]


@pytest.fixture
def of_agent(tmp_path, monkeypatch):
    """Return the arguments of agent.start for a witness; its processes end with the test."""
    monkeypatch.setattr(units, "SYSTEMD_RUNNING", tmp_path / "no-systemd")
    names = []

    def make(name, **changes):
        names.append(f"{name}-{os.getpid()}")
        own = {**node_plans(planned().as_dict())["w"], "monitor_port": free_port(), **changes}
        own |= {"job_id": names[-1], "job_dir": str(tmp_path / "jobs" / names[-1])}
        own["candidates"] = [["n1", "127.0.0.1"], ["n2", "127.0.0.2"]]
        nothing = {"token": "x", "files": [], "source_archive": "", "secret_env": {}, "secret_files": {}}
        return {"node_plan": own, "user": ME, **nothing}

    yield make
    for name in names:
        process_table.end(name, grace_s=0.0)


def test_the_agent_starts_a_witness_and_ends_it(of_agent):
    given = of_agent("witness")
    about = {name: given["node_plan"][name] for name in ("job_id", "job_dir")}
    found = agent.start(**given)
    assert found["monitor_alive"] and found["processes"] == []
    assert agent.collect(**about, stop=False, log_limit=99)["logs"] == {}
    found = agent.collect(**about, stop=True, log_limit=99, user=ME)
    assert (found["changed"], found["monitor_alive"], found["left"]) == (True, False, 0)
    assert found["monitor"]["end"]["state"] == "stopped"
    assert agent.remove(**about)["known"] is False and not Path(about["job_dir"]).exists()


def test_of_two_jobs_that_passed_preflight_one_starts_on_a_device(of_agent):
    """Any monitor that runs holds the devices of its plan."""
    agent.start(**of_agent("first", devices=[0, 1]))
    late = of_agent("late", devices=[1, 2])
    with pytest.raises(
        JobError, match=r"job first-\d+ has started on device 1 at the same time: expected devices that"
    ):
        agent.start(**late)
    assert not Path(late["node_plan"]["job_dir"]).exists()
    assert agent.start(**of_agent("beside", devices=[2]))["monitor_alive"]
    assert agent.start(**of_agent("shares", devices=[1], busy_devices="share"))["monitor_alive"]
