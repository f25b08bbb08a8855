"""Folders of a job that hosts share: asked in the visit before the start, shown in the plan, checked."""

import hashlib
import json

import pytest
from ansible.module_utils.trainyard.job.plan import plan as plans
from ansible.module_utils.trainyard.job.plan import sharing_findings
from ansible.module_utils.trainyard.job.run.wire.answers import checked
from ansible.module_utils.trainyard.report import job_page
from ansible.module_utils.trainyard_controller.job import planning
from job_samples import job_file, make_job, make_plan, make_request, member, node_facts

STATE = "/var/lib/trainyard/jobs"
HOSTS = ("n1", "n2", "n3")
SPARE = {"job_spares": 1, "job_max_restarts": 1, "job_checkpoints": "/shared/mine/step_*.pt"}
GOOD = {"findings": [], "programs": {}, "stale": False}


class Cluster:
    """Fake agents: `disks` has the disk of a folder on each host. A disk whose name begins with `nfs` holds tokens."""

    def __init__(self, **disks):
        self.disks = disks
        self.tokens, self.visits = {}, []
        self.facts = {
            host: {
                **node_facts(number),
                "boot_id": None,
                "container": None,
                "npu": None,
                "mpi": None,
                "fingerprint": "a",
            }
            for number, host in enumerate((*HOSTS, "w"))
        }

    def __call__(self, question, own):
        self.visits.append((question, list(own)))
        return {host: checked(question, self.answer(question, host, given), host) for host, given in own.items()}

    def answer(self, question, host, given):
        if question == "probe":
            return {"node": self.facts[host]}
        if question == "forget_tokens":
            for folder in given["folders"]:
                del self.tokens[self.disk(host, folder), given["name"]]
            return {"left": []}
        folders = given.get("sharing", {}).get("folders", ())
        seen = {folder: self.look(host, folder, given["sharing"]["name"]) for folder in folders}
        return {**GOOD, **({"folders": seen} if seen else {})}

    def disk(self, host, folder):
        return self.disks.get(host, {}).get(folder, f"disk of {host}")

    def look(self, host, folder, name):
        disk = self.disk(host, folder)
        number = hashlib.sha256(f"{host} {folder}".encode()).hexdigest()[:32]
        if not disk.startswith("nfs"):
            place = hashlib.sha256(disk.encode()).hexdigest()[:32]
            return {"kernel": True, "place": place, "token": "", "wrote": False}
        wrote = (disk, name) not in self.tokens
        return {"kernel": False, "place": "", "token": self.tokens.setdefault((disk, name), number), "wrote": wrote}


@pytest.fixture
def launch(tmp_path):
    (tmp_path / "train.py").write_text("print('train')\n")

    def prepare(cluster, hosts=HOSTS, asked_by="launch.yml", **job):
        given = {**job_file(source=str(tmp_path), launcher="direct"), **job}
        found = [planning.Host(host, f"10.77.0.{number + 1}") for number, host in enumerate(hosts)]
        made = planning.prepare(make_request(tmp_path, given, found, known=[*HOSTS, "w"], asked_by=asked_by), cluster)
        assert cluster.tokens == {}
        return made

    return prepare


def folders(made):
    return {each["variable"]: each["hosts"] for each in made.plan["folders"]}


def test_local_folders_cost_no_visit_and_stand_in_the_plan(launch):
    cluster = Cluster()
    made = launch(cluster, **SPARE, job_data=["/data/digits"], job_outputs=["results/*.csv", "/out/*.csv"])
    assert made.findings == [] and [question for question, _ in cluster.visits] == ["probe", "preflight"]
    assert folders(made) == dict.fromkeys(
        ("trainyard_state", "job_venv", "job_checkpoints", "job_data", "job_outputs"), "local"
    )
    assert [each["path"] for each in made.plan["folders"]] == [
        STATE, "/opt/trainyard/venvs/pytorch", "/shared/mine", "/out", "/data/digits"
    ]  # fmt: skip
    assert json.loads((made.run_dir / "plan.json").read_text())["folders"] == made.plan["folders"]


def test_the_page_of_a_job_has_its_folders():
    lines = sharing_findings.lines([{"variable": "job_data", "path": "/d", "hosts": "local"}])
    assert job_page._launch({"folders": "\n".join(lines)}) == [("folders on the nodes", "/d (job_data): local", True)]


def test_one_node_has_nothing_to_share(launch):
    cluster = Cluster()
    made = launch(cluster, hosts=("n1",), job_checkpoints="/shared/mine")
    assert made.findings == [] and "folders" not in made.plan


def test_who_shares_a_disk_is_shown_and_one_host_removes_the_token(launch):
    cluster = Cluster(**{host: {"/shared/mine": "nfs a"} for host in HOSTS})
    made = launch(cluster, **SPARE)
    assert made.findings == [] and folders(made)["job_checkpoints"] == "shared by all"
    assert cluster.visits[-1] == ("forget_tokens", ["n1"])
    assert made.plan["warnings"] == []
    assert "  shared      /shared/mine (job_checkpoints): shared by all\n" in plans.describe(made.plan)


def test_checkpoints_that_a_spare_does_not_see_are_a_warning_before_the_start(launch):
    made = launch(Cluster(), **SPARE)
    (warning,) = made.plan["warnings"]
    assert (warning["check"], warning["host"]) == ("job_checkpoints", "")
    assert warning["found"] == "/shared/mine of n1, where rank 0 saves, is not the one of n3"
    one_for_all = {"/shared/mine": "nfs a"}
    # Without a spare that needs it, or where the spare sees it, there is none.
    for cluster, job in (
        (Cluster(), {"job_checkpoints": "/shared/mine", "job_max_restarts": 1}),
        (Cluster(n1=one_for_all, n3=one_for_all), SPARE),
    ):
        assert launch(cluster, **job).plan["warnings"] == []
    fewer = {"job_min_nodes": 2, "job_max_restarts": 1, "job_checkpoints": "saved"}
    (warning,) = launch(Cluster(), **fewer).plan["warnings"]
    assert warning["found"].endswith("/saved of n1, where rank 0 saves, is not the one of n2, n3")


def test_a_shared_state_is_shown_and_no_finding(launch):
    """Each host has its own part of a job's folder there, the witness, too."""
    shared = {STATE: "nfs home"}
    made = launch(Cluster(n1=shared, n3=shared))
    assert made.findings == [] and folders(made)["trainyard_state"] == "shared by n1, n3; local on n2"
    assert launch(Cluster(n2=shared, w=shared), job_witness="w", job_max_restarts=1).findings == []


def test_ranks_of_daemons_that_ssh_starts_cannot_tell_parts_apart():
    mpi = {"version": "4.1.4", "path": "/usr/bin/mpirun"}
    job = make_job(launcher="mpirun", mpi_parameters={"plm_rsh_agent": "ssh"})
    plan = make_plan(job, [member(0, mpi=mpi), member(1, mpi=mpi)])
    asked = sharing_findings.folders(plan.job, plan.placement)
    there = {"kernel": True, "place": "f" * 32, "token": "", "wrote": False}
    answers = {host: {path: there for _, path in asked} for host in HOSTS[:2]}
    (finding,) = sharing_findings.judge(plan.job, plan.placement, asked, answers)[1]
    assert (finding.check, finding.found) == ("trainyard_state", f"n1, n2 share {STATE}")


def test_a_job_that_only_measures_asks_for_no_folder(launch):
    assert "folders" not in launch(Cluster(), asked_by="pair_check.yml").plan
    assert "job_venv" in folders(launch(Cluster(), asked_by="drill.yml"))


def test_a_node_that_knows_nothing_keeps_no_job_from_starting(launch):
    cluster = Cluster()
    nothing = {"kernel": False, "place": "", "token": "", "wrote": False}
    cluster.look = lambda host, folder, name: nothing
    made = launch(cluster, **SPARE)
    assert made.findings == [] and made.plan["warnings"] == []
    assert {*folders(made).values()} == {"unknown whether it is shared"}


def test_an_answer_about_folders_has_bounds():
    nothing = {"kernel": False, "place": "", "token": "", "wrote": False}
    for folders in (
        {"/x": {**nothing, "token": "x"}},
        {"/x": {**nothing, "token": "f" * 33}},
        {"/x": {**nothing, "place": "\n" * 32}},
        {"/x": {}},
        {f"/{number}": nothing for number in range(33)},
        {"/" + "x" * 5000: nothing},
    ):
        assert checked("preflight", {**GOOD, "folders": folders}, "n1")["failed"], folders


def test_folders_are_those_of_the_job():
    members = [member(0), member(1)]
    plan = make_plan(make_job(launcher="direct", checkpoints="saved/*/step_*.pt", data=["/d", "/d"]), members)
    assert sharing_findings.folders(plan.job, plan.placement) == [
        ("trainyard_state", "/var/lib/trainyard/jobs"),
        ("job_venv", "/opt/trainyard/venvs/pytorch"),
        ("job_checkpoints", "/var/lib/trainyard/jobs/digits-20261120-101500/saved"),
        ("job_data", "/d"),
    ]
    many = make_plan(make_job(launcher="direct", data=[f"/d{number}" for number in range(99)]), members)
    assert len(sharing_findings.folders(many.job, many.placement)) == 32
