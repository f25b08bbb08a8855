"""Preparing a job: the visits to nodes, cached facts, the written plan and the jobs that are refused."""

import json
import os
import re
import tarfile

import pytest
from ansible.module_utils.trainyard.base.findings import Finding
from ansible.module_utils.trainyard.cluster.switches import topology
from ansible.module_utils.trainyard.job.record import excluded_hosts
from ansible.module_utils.trainyard.job.schedulers import ssh
from ansible.module_utils.trainyard_controller.job import planning
from ansible.module_utils.trainyard_controller.nodes.clock_offset import of_visit
from ansible.module_utils.trainyard_controller.runs import excluded_record
from hypothesis import given
from hypothesis import strategies as st
from job_samples import job_file, make_request, node_facts

GOOD = {"findings": [], "programs": {}, "stale": False}
DISK = {"host": "n1", "check": "disk", "found": "1 MiB", "expected": "more", "action": "make room"}
GONE = {"unreachable": True, "msg": "Connection timed out"}
INVALID = (("job_nodes", "two"), ("job_nodes", -1), ("job_port", 1), ("job_scheduler", "k8s"))

# The other facts of an answer, without which cached facts are not read.
WHOLE = {"boot_id": None, "container": None, "npu": None, "mpi": None}


class Nodes:
    """Fake agents: `facts` and `checks` by host; a host without facts does not answer."""

    def __init__(self, *hosts):
        self.facts = {host: {**node_facts(number), **WHOLE, "fingerprint": "a"} for number, host in enumerate(hosts)}
        self.checks = {}
        self.queries = []

    def __call__(self, question, own):
        self.queries.append((question, list(own)))
        return {host: self._answer(question, host, given) for host, given in own.items()}

    def _answer(self, question, host, given):
        facts = self.facts.get(host)
        if facts is None:
            return GONE
        if question == "probe":
            return {"node": facts}
        stale = given["node_plan"]["fingerprint"] != facts["fingerprint"]
        answer = {**GOOD, "stale": stale, **self.checks.get(host, {})}
        return {**answer, "node": facts} if stale or answer["findings"] else answer

    def visits(self):
        queries, self.queries = self.queries, []
        return queries


@pytest.fixture
def nodes():
    return Nodes("n1", "n2")


@pytest.fixture
def requested(tmp_path):
    source = tmp_path / "source"
    (source / "__pycache__").mkdir(parents=True)
    (source / "__pycache__" / "train.pyc").touch()
    (source / "train.py").write_text("print('train')\n")
    (source / "same.py").symlink_to("train.py")

    def make(job=None, hosts=("n1", "n2"), env=None, **changes):
        given = job_file(source=str(source), launcher="direct")
        addresses = [f"10.77.0.{number + 1}" for number in range(len(hosts))]
        found = [planning.Host(host, at, (env or {}).get(host)) for host, at in zip(hosts, addresses)]
        return make_request(tmp_path, {**given, **(job or {})}, found, **changes)

    return make


@pytest.fixture
def cached(requested, nodes):
    """Return what a first launch made, whose facts of the nodes are cached."""
    made = planning.prepare(requested(), nodes)
    nodes.visits()
    return made


def test_a_plan_is_written_with_the_source(requested, nodes):
    made = planning.prepare(requested(), nodes)
    assert made.findings == []
    assert nodes.visits() == [("probe", ["n1", "n2"]), ("preflight", ["n1", "n2"])]
    written = json.loads((made.run_dir / "plan.json").read_text())
    assert (written["job_id"], written["world_size"], written["asked_by"]) == (made.run_dir.name, 2, "launch.yml")
    assert written == made.plan and written["check"] is False
    with tarfile.open(made.run_dir / "source.tar.gz") as source:
        assert source.getnames() == ["same.py", "train.py"]
        assert source.getmember("same.py").linkname == "train.py"
        assert {info.uname for info in source} == {"root"}
    assert made.plan["source_left_out"] == {"never sent": ["__pycache__/"]}
    assert made.not_sent == ""


def test_nodes_of_a_switch_follow_one_another(requested):
    hosts = ("n1", "n2", "n3")
    found = topology("lldp", {"n1": ["a"], "n2": ["b"], "n3": ["a"]}, hosts)
    for order, expected in (("topology", ["n1", "n3", "n2"]), ("inventory", [*hosts])):
        request = requested({"job_rank_order": order}, hosts, topology=found)
        prepared = planning.prepare(request, Nodes(*hosts))
        assert prepared.findings == [] and [node["host"] for node in prepared.plan["nodes"]] == expected


def test_a_link_that_leaves_the_source_is_refused_before_anything_is_sent(requested, nodes, tmp_path):
    (tmp_path / "key").write_text("a private key")
    (tmp_path / "source" / "data.txt").symlink_to(tmp_path / "key")
    made = planning.prepare(requested(), nodes)
    (finding,) = made.findings
    assert f"data.txt -> {tmp_path}/key" in finding.found
    assert not any(b"private" in path.read_bytes() for path in tmp_path.glob("runs/**/*") if path.is_file())


def test_a_script_that_is_left_out_is_named_with_the_reason(requested, nodes, tmp_path):
    (tmp_path / "source" / ".gitignore").write_text("train.py\n")
    (finding,) = planning.prepare(requested(), nodes).findings
    assert finding.check == "job_command" and finding.found.endswith("as train.py is left out (.gitignore)")


def test_ranks_that_cannot_be_followed_keep_a_job_from_starting(requested, nodes):
    assert planning.prepare(requested(follow="0,1", live=True), nodes).findings == []
    made = planning.prepare(requested(follow="5"), nodes)
    assert [(finding.check, finding.found) for finding in made.findings] == [("follow", "'5'")]
    assert made.headline == planning.NO_JOB


def test_with_cached_facts_one_visit_is_enough(requested, nodes, cached):
    second = planning.prepare(requested(), nodes)
    assert nodes.visits() == [("preflight", ["n1", "n2"])]
    assert second.run_dir.name != cached.run_dir.name and second.findings == []
    # The facts of one environment say nothing of another one.
    planning.prepare(requested({"job_venv": "/other"}), nodes)
    assert nodes.visits()[0] == ("probe", ["n1", "n2"])


def test_only_nodes_without_cached_facts_are_probed(requested, nodes):
    planning.prepare(requested(hosts=["n1"]), nodes)
    nodes.visits()
    assert planning.prepare(requested(), nodes).findings == []
    assert nodes.visits() == [("probe", ["n2"]), ("preflight", ["n1", "n2"])]


def test_a_changed_node_is_planned_with_its_new_facts(requested, nodes, cached):
    nodes.facts["n2"] = {**node_facts(1, cpus=4), **WHOLE, "fingerprint": "b"}
    made = planning.prepare(requested(), nodes)
    # Its answer has the new facts, so there is no second probe.
    assert nodes.visits() == [("preflight", ["n1", "n2"]), ("preflight", ["n1", "n2"])]
    assert made.findings == []
    planning.prepare(requested(), nodes)
    assert nodes.visits() == [("preflight", ["n1", "n2"])]


def test_findings_from_cached_facts_are_checked_again(requested, nodes, cached):
    nodes.checks["n1"] = {"findings": [DISK]}
    refused = planning.prepare(requested(), nodes)
    assert [finding.check for finding in refused.findings] == ["disk"]
    assert nodes.visits() == [("preflight", ["n1", "n2"]), ("preflight", ["n1", "n2"])]
    assert [item["check"] for item in json.loads((refused.run_dir / "findings.json").read_text())] == ["disk"]
    assert refused.headline == planning.NO_JOB


def test_a_dead_node_is_probed_once(requested, nodes, tmp_path, cached):
    del nodes.facts["n2"]
    refused = planning.prepare(requested(), nodes)
    assert [(finding.host, finding.check) for finding in refused.findings] == [("n2", "reach")]
    assert [hosts for _, hosts in nodes.visits()].count(["n1", "n2"]) == 1
    # A node without an answer is not checked.
    (tmp_path / "facts.json").unlink()
    assert [finding.host for finding in planning.prepare(requested(), nodes).findings] == ["n2"]
    assert ("preflight", ["n1", "n2"]) not in nodes.visits()


def test_earlier_findings_come_with_the_rest(requested, nodes):
    nodes.checks["n1"] = {"findings": [DISK]}
    tls = Finding(check="tls", found="old", expected="new", action="renew")
    refused = planning.prepare(requested(found=[tls], env={"n2": {"RANK": "1"}}), nodes)
    assert [(each.host, each.check) for each in refused.findings] == [
        ("n2", "job_node_env"),
        ("", "tls"),
        ("n1", "disk"),
    ]


def test_check_mode_writes_the_plan_and_the_last_one_stays(requested, nodes, tmp_path):
    started = planning.prepare(requested(), nodes)
    other = {"job_name": "digits-2"}
    previews = [planning.prepare(requested(job, check=True), nodes) for job in (other, {}, {}, {})]
    kept = {path.parent.name: json.loads(path.read_text())["check"] for path in tmp_path.glob("runs/*/plan.json")}
    assert kept == {started.run_dir.name: False, previews[0].run_dir.name: True, previews[-1].run_dir.name: True}


@pytest.mark.parametrize(
    ("changes", "check", "found"),
    [
        ({"available": 0, "hosts": []}, "job_hosts", "no host in 'gpus'"),
        ({"job": {"job_nodes": 3}}, "job_nodes", "3 nodes requested, 2 in group gpus"),
        ({"given": ["job_nmae"]}, "job file", "unknown variable job_nmae"),
        ({"job": {"job_source": "/proc/nowhere"}}, "job_source", "no folder '/proc/nowhere' on the controller"),
        *(({"job": {key: value}}, key, repr(value)) for key, value in INVALID),
        ({"env": {"n2": {"RANK": "1"}}}, "job_node_env", "RANK=1"),
        ({"env": {"n1": ["A=1"]}}, "job_node_env", "a list"),
    ],
)
def test_a_job_that_cannot_run_leaves_nothing(requested, nodes, tmp_path, changes, check, found):
    changes = {**changes, "job": {**changes.get("job", {}), "job_hosts": "gpus"}}
    refused = planning.prepare(requested(**changes), nodes)
    assert [(finding.check, finding.found) for finding in refused.findings] == [(check, found)]
    assert refused.run_dir is None and not (tmp_path / "runs").exists()


def test_an_invalid_job_file_probes_no_node(requested, nodes):
    planning.prepare(requested({"job_port": 1}), nodes)
    assert nodes.visits() == []


def test_an_invalid_source_is_a_finding(requested, nodes, tmp_path, monkeypatch):
    monkeypatch.setattr(ssh, "MAX_SOURCE", 1 << 20)
    (tmp_path / "source" / "data.bin").write_bytes(os.urandom(2 << 20))
    (finding,) = planning.prepare(requested(), nodes).findings
    assert (finding.check, finding.found) == ("job_source", "3 MiB, packed")


def test_hosts_that_limit_excludes_are_findings(requested):
    def ask(question, own):
        every = {"probe": {"node": node_facts()}, "preflight": GOOD}[question]
        return {host: every if host == "n1" else {} for host in own}

    refused = planning.prepare(requested(limit="n1,localhost"), ask)
    assert [(finding.host, finding.check) for finding in refused.findings] == [("n2", "limit")]


def test_two_launches_do_not_begin_with_the_same_port(requested, nodes):
    """Ports come from the whole range, also with cached facts: 64 ports were too few for five launches."""
    for facts in nodes.facts.values():
        facts["unused_ports"] = "10000-32767,61000-65535"
    planning.prepare(requested(), nodes)
    ports = {planning.prepare(requested(), nodes).plan["head"]["port"] for _ in range(8)}
    assert max(ports) - min(ports) > 64


@pytest.mark.parametrize("version", ["unreadable", "older"])
def test_cached_facts_that_are_unreadable_or_of_another_version_are_replaced(
    requested, nodes, tmp_path, cached, version
):
    facts = json.loads((tmp_path / "facts.json").read_text())
    facts["key"]["facts"].remove("unused_ports")
    for each in facts["nodes"].values():
        del each["facts"]["unused_ports"]
    (tmp_path / "facts.json").write_text(json.dumps(facts) if version == "older" else "{half")
    assert planning.prepare(requested(), nodes).findings == []
    assert nodes.visits()[0] == ("probe", ["n1", "n2"])


SPARE = {"job_spares": 1, "job_max_restarts": 1}


@pytest.mark.parametrize(("faulty", "trains"), [("n1", ["n2", "n3"]), ("n2", ["n1", "n3"]), ("n3", ["n1", "n2"])])
def test_an_excluded_host_is_replaced_by_a_spare(requested, faulty, trains):
    nodes = Nodes("n1", "n2", "n3")
    nodes.checks[faulty] = {"findings": [{**DISK, "host": faulty}]}
    made = planning.prepare(requested(SPARE, ("n1", "n2", "n3")), nodes)
    assert made.findings == [] and [finding.host for finding in made.left_out] == [faulty]
    assert [node["host"] for node in made.plan["nodes"]] == trains and made.plan["spares"] == []
    nodes.checks = {}
    again = planning.prepare(requested(SPARE, ("n1", "n2", "n3")), nodes)
    assert [node["host"] for node in again.plan["spares"]] == ["n3"] and again.left_out == ()


SICK = {"host": "n2", "check": "GPU ECC errors", "found": "GPU 1: 2 uncorrected", "expected": "none", "action": "reset"}
UNHEALTHY = {"findings": [SICK], "unhealthy": ["GPU ECC errors: GPU 1: 2 uncorrected"]}


def test_an_unhealthy_host_stays_excluded_until_it_passes(requested, tmp_path):
    file = tmp_path / "runs" / ".excluded-lab.json"
    hosts, nodes = ("n1", "n2", "n3"), Nodes("n1", "n2", "n3")
    nodes.checks = {host: {"unhealthy": []} for host in hosts}

    def launch(job=SPARE, **changes):
        return planning.prepare(requested(job, hosts, excluded_file=file, known=[*hosts, "n4"], **changes), nodes)

    assert launch().readmitted == [] and not file.exists()
    nodes.checks["n2"] = UNHEALTHY
    assert launch(check=True).left_out and not file.exists()
    first = launch()
    assert [finding.found for finding in first.left_out] == ["GPU 1: 2 uncorrected"]
    (line,) = excluded_hosts.lines(excluded_record.read(file))[1:]
    assert line.startswith("  n2 since 20") and line.endswith(
        f" by {first.plan['job_id']}: GPU ECC errors: GPU 1: 2 uncorrected"
    )
    # The record keeps the time and the job, also where no spare takes the place.
    (finding,) = launch({}).findings
    assert re.fullmatch(rf"GPU 1: 2 uncorrected \(excluded since 20\S+ \S+ by {first.plan['job_id']}\)", finding.found)
    assert excluded_record.read(file)["n2"]["job_id"] == first.plan["job_id"]
    # A problem of the job does not exclude a host, and a job without the health check readmits no host.
    nodes.checks["n2"] = {"findings": [{**DISK, "host": "n2", "check": "data"}], "unhealthy": []}
    assert launch({"job_health_gate": False}).readmitted == () and "n2" in excluded_record.read(file)
    # A health check that another job's devices cut short neither readmits nor excludes a host.
    for host in ("n2", "n1"):
        nodes.checks[host] = {"findings": [{**DISK, "host": host, "check": "devices"}], "unhealthy": None}
        assert launch().readmitted == [] and list(excluded_record.read(file)) == ["n2"]
    nodes.checks |= {host: {"unhealthy": []} for host in ("n1", "n2")}
    (back,) = launch().readmitted
    assert back.startswith("n2 passes the health check and takes part again; it was excluded since 20")
    assert excluded_record.read(file) == {} and launch().readmitted == []


def test_a_clock_that_is_off_excludes_its_host(requested):
    hosts, nodes = ("n1", "n2", "n3"), Nodes("n1", "n2", "n3")

    def launch(offsets, margin=0.5, **job):
        nodes.checks = {host: {"clock": {"offset_s": offset, "margin_s": margin}} for host, offset in offsets.items()}
        return [(each.host, each.check, each.found) for each in planning.prepare(requested(job, hosts), nodes).findings]

    off = {"n1": 0.2, "n2": -61.0, "n3": 0.0}
    assert launch(off) == [("n2", "clock", "-61 s from the median of the nodes")]
    for offsets, margin, job in (
        (off, 0.5, {"job_health_gate": False}),
        (off, 60.0, {}),
        ({"n1": 3.0, "n2": 0.0, "n3": 0.0}, 0.5, {}),
    ):
        assert launch(offsets, margin, **job) == []


@given(st.floats(-1e6, 1e6), *[st.floats(0, 5)] * 3)
def test_a_visit_measures_the_clock_within_its_margin(offset, there, at_work, back):
    sent = 1_790_000_000.0
    begun = sent + there + offset
    ended = begun + at_work
    found = of_visit(sent, ended - offset + back, begun, ended)
    assert abs(found["offset_s"] - offset) <= found["margin_s"] + 0.001
    assert found["margin_s"] <= (there + back) / 2 + 0.001


def test_an_unwritable_record_is_a_warning(requested, nodes, tmp_path):
    nodes.checks["n2"] = {"findings": [], "unhealthy": ["memory: 3 MiB available"]}
    made = planning.prepare(requested(excluded_file=tmp_path / "no" / "such", known=["n1", "n2"]), nodes)
    assert made.plan and made.warning.startswith("the record of excluded hosts cannot be written: ")


def test_a_host_that_gives_no_answer_is_left_out_and_no_more_than_there_are_spares(requested, tmp_path):
    nodes = Nodes("n1", "n2", "n3")
    nodes.facts.pop("n2")
    nodes.checks = {"n1": {"unhealthy": []}}
    file = tmp_path / "excluded.json"
    made = planning.prepare(requested(SPARE, ("n1", "n2", "n3"), excluded_file=file, known=["n1", "n2", "n3"]), nodes)
    assert made.findings == [] and [(finding.host, finding.check) for finding in made.left_out] == [("n2", "reach")]
    assert excluded_record.read(file)["n2"]["reason"].startswith("reach: Connection timed out")
    nodes.checks["n3"] = {"findings": [{**DISK, "host": "n3"}]}
    refused = planning.prepare(requested(SPARE, ("n1", "n2", "n3")), nodes)
    assert {finding.host for finding in refused.findings} >= {"n2"} and refused.left_out == ()
    # A problem of the job itself belongs to no host.
    assert planning.prepare(requested({**SPARE, "job_source": "/proc/nowhere"}, ("n1", "n3")), nodes).findings
