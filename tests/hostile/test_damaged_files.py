"""Files of ours that are damaged, beside those of runs: each reader gives a finding, or goes on without the file."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.base.findings import UnusableError
from ansible.module_utils.trainyard.base.shapes import named
from ansible.module_utils.trainyard.bundle import contents, sbom, site_lock, systems, use
from ansible.module_utils.trainyard.bundle.debs import Deb
from ansible.module_utils.trainyard.bundle.wheels import Wheel
from ansible.module_utils.trainyard.cluster import session_environment
from ansible.module_utils.trainyard.job.record.excluded_hosts import HealthCheck
from ansible.module_utils.trainyard.job.run.wire.answers import NODE
from ansible.module_utils.trainyard.nvidia import upgrade
from ansible.module_utils.trainyard.removal import removal_record
from ansible.module_utils.trainyard.slurm import health
from ansible.module_utils.trainyard.software import apt
from ansible.module_utils.trainyard.verify import bandwidth
from ansible.module_utils.trainyard_controller.bundle import site_locking
from ansible.module_utils.trainyard_controller.cluster import upgrade_table
from ansible.module_utils.trainyard_controller.job import run_choice, run_overview
from ansible.module_utils.trainyard_controller.nodes import cached_facts
from ansible.module_utils.trainyard_controller.runs import excluded_record, run_folder
from ansible.module_utils.trainyard_controller.verify import measurements, report_compare
from ansible.module_utils.trainyard_node.job.record.event_sender import of_job
from ansible.module_utils.trainyard_node.job.record.secrets import forget_secrets
from ansible.module_utils.trainyard_node.job.run import job_folder, job_life
from ansible.module_utils.trainyard_node.job.run.ranks import container, folders, process_table, rank_exits
from ansible.module_utils.trainyard_node.machine.as_user import JobError
from ansible.module_utils.trainyard_node.machine.tree import Tree
from ansible.module_utils.trainyard_node.nvidia import cuda_toolkits, host
from ansible.module_utils.trainyard_node.software import build_prefix, dataset_files, python_environment
from damage import damaged
from job_samples import node_facts, saved_plan, saved_record, saved_verification, submitted

CAPTURED = Path(__file__).resolve().parents[1] / "fixtures/run/node"
TWELVE, SUM = systems.named("debian-12-x86_64"), 64 * "a"
PYTORCH = {"path": "/opt/trainyard/venvs/pytorch", "interpreter": "python3", "packages": ["torch==2.13.0"]}
REQUESTS = {"n1": {"x": {"packages": ["openmpi-bin"], "environment": PYTORCH, "missing": [{"what": "y", "why": "z"}]}}}


def lock():
    wanted = site_lock.wanted(REQUESTS, {"n1": TWELVE})
    deb = Deb("openmpi-bin", "4.1.4", "amd64", "openmpi-bin_4.1.4.deb", "http://m.example.org/x", 1 << 20, SUM)
    wheel = Wheel("torch", "2.13.0", "torch.whl", "http://i.example.org/t", 10, SUM)
    empty = site_lock.unchanged(None, wanted)
    made = site_lock.lock(wanted, empty, {TWELVE: [deb]}, {(TWELVE, "pytorch"): [wheel]}, REQUESTS, {})
    image = {"image": f"docker://r.example.org/x@sha256:{SUM}", "architecture": "amd64", "file": "x.tar"}
    files = [{"what": "cuDNN", "url": "http://d.example.org/c.tgz", "sha256": SUM}]
    return {**made, "files": files, "images": [{**image, "bytes": 0, "sha256": ""}]}


def read_lock(path):
    """What lock.yml, bundle.yml and site.yml do with a lock."""
    found = site_locking.read(path)
    wanted = site_lock.wanted(REQUESTS, {"n1": TWELVE})
    site_lock.without(wanted, site_lock.unchanged(found, wanted))
    site_lock.changes(found, lock())
    site_lock.summary(found)
    contents.listing(contents.items(found), contents.missing(found))
    contents.texts(found)
    sbom.text(sbom.sbom(found, site_lock.text(found), "1"))
    use.lacking(found, REQUESTS, {"n1": TWELVE}, "lock", "x")
    use.pins(found, REQUESTS, {"n1": TWELVE})
    use.fit(found, REQUESTS, {"n1": TWELVE})
    if str(TWELVE) in found["systems"]:
        use.versions(found, TWELVE)
        use.paths(found, TWELVE, ["lock"])


FACTS = named(node_facts(mpi=None, npu=None, fingerprint="x", boot_id=None, container=None), NODE)
TARGET = {"provider": "network_repo", "version": "550.127.08", "flavour": "open"}
BEFORE = {**TARGET, "runfile": "", "record": "", "parts": {}, "packages": {"nvidia-smi": "1"}, "held": []}
TABLE = {"format": 1, "nodes": {"n1": {"state": "failed", "why": "x", "target": TARGET, "before": BEFORE}}}
EXCLUDED = {"excluded": {"n1": {"reason": "broken", "since": 1795000000, "job_id": "a-1", "devices": [0]}}}
EXCLUDED |= {"format": 1, "passed": {"n2": 1795000000}}


def cache(path):
    return cached_facts.CachedFacts(path, {}, {"n1": "10.0.0.1"})


def read_facts(path):
    cache(path).read()
    cache(path).add({"n1": FACTS})


def written_facts(path):
    cache(path).add({"n1": FACTS})
    return json.loads(path.read_text())


def read_excluded(path):
    excluded_record.read(path)
    excluded_record.update(path, {"n1": HealthCheck(["broken"]), "n2": HealthCheck([])}, "a-1", ["n1", "n2"], False)


def read_table(path):
    upgrade.table_text(upgrade_table.read_table(path.parent), [["n1"]])
    upgrade_table.note(path.parent, {"n1": {"state": "waiting", "why": "", "target": TARGET}}, [["n1"]])


def beside_a_run(path, how):
    """What reads a small file of a run, whose plan and record are whole."""
    runs = path.parent.parent
    plan = saved_plan(path.parent.name, **(submitted() if path.name == "submitted.json" else {}))
    (path.parent / "plan.json").write_text(json.dumps(plan))
    (path.parent / "summary.json").write_text(json.dumps(saved_record(path.parent.name, ["n1"])))
    good = runs / "good-1"
    good.mkdir(exist_ok=True)
    (good / "plan.json").write_text(json.dumps(saved_plan("good-1")))
    listed = run_overview.list_runs(runs, None, {})
    assert "good-1" in [run["id"] for run in listed["runs"]]
    plans = run_folder.read_plans(runs)
    run_folder.scheduler_runs(runs, plans)
    run_folder.witnesses(runs, plans)
    run_folder.launches(runs)
    how(runs, path.parent)


def read_report(path):
    listed = run_overview.list_runs(path.parents[1], None, {})
    assert "verify-1" in listed["text"]
    run_folder.saved_runs(path.parents[1], 0.0)
    good = path.with_name("other.json")
    good.write_text(json.dumps(REPORT))
    report_compare.compare_reports(path, good, None, 0.05)
    newer = path.parents[1] / "verify-2/report.json"
    newer.parent.mkdir(exist_ok=True)
    newer.write_text(json.dumps({**REPORT, "started": REPORT["started"] + 1}))
    report_compare.compare_reports(path, None, path.parents[1], 0.05)


CHECK = {"name": "kernel", "state": "fail", "found": "x", "reason": "", "hosts": ["n1"]}
SIZES = [{"bytes": 1 << 20, "out_of_place": {"busbw": 10.0}, "in_place": None}]
REPORT = saved_verification(
    "verify-1",
    "lab",
    nodes=[{"host": "n1", "state": "fail", "facts": {"kernel": "6.1"}}],
    phases=[{"name": "drift", "state": "fail", "checks": [CHECK]}],
    benchmarks=[{"collective": "all_reduce", "backend": "nccl", "ranks": 16, "hosts": ["n1", "n2"], "sizes": SIZES}],
    stragglers={"median": 20.0, "spread": 0.1, "nodes": [{"host": "n1", "score": 0.9}]},
    versions={"trainyard": "1"},
)
BASELINES = {"schema": bandwidth.BASELINE_SCHEMA, "entries": {"a": {"busbw": 9.5, "bytes": 8, "latency_us": 5.5}}}
LAUNCH = {
    **dict.fromkeys(("job_name", "asked_by", "created", "machine"), "x"),
    **{"job_id": "bad-1", "nodes": [], "pid": 1, "start_time": 1},
}
ON_CONTROLLER = {
    "lock": ("trainyard.lock", lock(), read_lock),
    "facts": (".facts-lab.json", written_facts, read_facts),
    "excluded": (".excluded-lab.json", EXCLUDED, read_excluded),
    "table": ("table.json", TABLE, read_table),
    "baselines": ("baselines.json", BASELINES, lambda path: measurements.Baselines(path)),
    "report": ("verify-1/report.json", REPORT, read_report),
    "removed": (
        "runs/bad-1/removed.json",
        {"format": 1, "hosts": {"n1": 1795000000.0}},
        partial(beside_a_run, how=lambda runs, run: (run_choice.find(runs, "bad-1"), run_folder.note_removed(run, {}))),
    ),
    "submitted": (
        "runs/bad-1/submitted.json",
        {"format": 1, "engine_id": "7", "removed": False},
        partial(beside_a_run, how=lambda runs, run: run_choice.find(runs, run.name)),
    ),
    "drill": (
        "runs/bad-1/drill.json",
        {"format": 1, "state": "fail", "headline": "survives: no", "runs": [{"job_id": "bad-1"}]},
        partial(beside_a_run, how=lambda runs, run: run_overview.list_runs(runs, None, {})),
    ),
    "launch": (
        "runs/bad-1/not-started",
        LAUNCH,
        partial(beside_a_run, how=lambda runs, run: run_choice.find(runs, run.name, must_name=True)),
    ),
}


@pytest.mark.parametrize("kind", ON_CONTROLLER)
def test_a_damaged_file_of_the_controller(tmp_path, kind):
    name, content, read = ON_CONTROLLER[kind]
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content(path) if callable(content) else content)
    path.write_text(text)
    read(path)
    for damage in damaged(text, 60 if "runs/" in name else 200):
        path.write_bytes(damage)
        try:
            read(path)
        except UnusableError as error:
            assert path.name in str(error) or path.parent.name in str(error)


def only(*errors):
    """Return a function that calls another, of which these errors are findings."""

    def call(read, content):
        try:
            read(content)
        except errors as error:
            assert str(error)

    return call


def in_file(read, name=".trainyard.json"):
    def of_file(content, tmp_path):
        (tmp_path / name).write_bytes(content)
        read(tmp_path)

    return of_file


REMOVAL = removal_record.new("2026-11-22", late=False)
REMOVAL |= {"packages": {"a1": {"automatic": True, "purge": False}}, "homes": ["/home/train"], "users": {"train": 990}}
REMOVAL |= {"places": {"/etc/x": {"kind": "file", "mode": 420, "uid": 0, "gid": 0, "content": "a"}}}
PORT = {"device": "mlx5_0", "port": 1, "state": "x", "physical_state": None, "rate_gbps": 400.0, "active": True}
MEMORY = {"boot_id": "b", "drained_for": {"a": "b"}, "accepted": {}, "once": ["c"], "ports": [PORT]}
MANIFEST = {"dataset": "digits", "source": {"sha256": SUM}, "files": {"a/b": {"size": 1, "sha256": SUM}}, "links": {}}
PIECE = {"path": ["/a"], "libraries": ["/b"], "variables": {"A": "b"}}


def session(content):
    text = f"# piece cuda {content.decode('utf-8', 'replace')}\n"
    session_environment.rewrite(text, "train", "mpi", {"path": ["/c"]})


def remembered(content, tmp_path):
    from ansible.module_utils.trainyard_node.slurm.health_check import _read

    (tmp_path / "memory").write_bytes(content)
    memory = health.recall(_read(str(tmp_path / "memory")), "b")
    node = health.Node(True, True, {})
    health.decide(node, health.Found({"a": "b"}, set()), memory)
    from ansible.module_utils.trainyard.hardware.node_health import best_ports

    best_ports(memory["ports"], [PORT])


def packages(content, tmp_path):
    folder_of = tmp_path / "var/lib/trainyard-root/packages"
    folder_of.mkdir(parents=True, exist_ok=True)
    (folder_of / "cuda.json").write_bytes(content)
    host._held(Tree(str(tmp_path)), "/var/lib/trainyard-root/packages")
    cuda_toolkits._record(Tree(str(tmp_path)), "/var/lib/trainyard-root/packages/cuda.json")


def environment(path):
    found = python_environment.examine(path)
    assert found.lost is not None and isinstance(found.record.get("verified") or {}, dict)


def built(path):
    record = build_prefix.read_record(path)
    [str(option) for option in (record or {}).get("make", [])]


ON_NODES = {
    "removal": (REMOVAL, lambda content, _: removal_record.loads(content), (removal_record.RecordError,)),
    "packages": ({"libnccl2": {"version": "2.1", "added": True}}, packages, ()),
    "installed": (
        {"libnccl2": {"version": "2.1", "added": True}},
        lambda content, _: apt.read_record(content),
        (ValueError,),
    ),
    "build": ({"source": "x", "make": ["MPI=1"]}, in_file(built), ()),
    "environment": ({"packages": {"a": "1"}, "wheels": {}, "verified": {"identity": "x"}}, in_file(environment), ()),
    "data set": (
        MANIFEST,
        in_file(lambda path: dataset_files.examine(path, "digits", {"sha256": SUM}, ""), dataset_files.MANIFEST),
        (dataset_files.DatasetFailure,),
    ),
    "health": (MEMORY, remembered, ()),
    "session": (PIECE, lambda content, _: session(content), (ValueError,)),
}


@pytest.mark.parametrize("kind", ON_NODES)
def test_a_damaged_file_of_a_node(tmp_path, kind):
    content, read, errors = ON_NODES[kind]
    text = json.dumps(content)
    read(text.encode(), tmp_path)
    for damage in damaged(text, 200):
        only(*errors)(lambda given: read(given, tmp_path), damage)


SUMS = f"{SUM}  debs/debian-12-x86_64/Packages\n{64 * 'b'}  lock\n"


def test_damaged_sums_of_a_bundle():
    for damage in damaged(json.dumps(SUMS), 100):
        only(ValueError)(contents.read_sums, damage.decode("utf-8", "replace"))


EVENTS = {"receivers": [{"kind": "file", "file": "/x", "only": [], "to": "file /x"}], "secret": "", "every_s": 600}
OF_NODE = {
    "node_plan.json": None,
    "monitor.json": None,
    "cluster.json": None,
    "pids.json": {"rank0": {"pid": 7, "start_time": 9, "attempt": 0}},
    "exits/rank0.json": None,
    "attempts.json": {"": 1, "rank0": 2},
    "events.json": EVENTS,
    "set_aside.json": {"entries": []},
    "succession.json": {},
}


def of_job_folder(path):
    """Do with the folder of a job what an agent does."""
    plan = {"processes": [], "secret_env": {}, "base_env": {}}
    for act in (
        job_folder.status,
        job_folder.has_end,
        job_folder.known_secrets,
        folders.record,
        folders.held_devices,
        folders.held_ports,
        process_table.monitor_of,
        rank_exits.read_exits,
        container.remove_left,
        container.remove_all,
        lambda found: container.remove_of_process(found, "rank0"),
        lambda found: job_folder.read_logs(found, 1000),
        lambda found: of_job(found, plan, lambda *_: None),
        lambda found: job_life.list_folders(found.parent),
        forget_secrets,
    ):
        try:
            act(path)
        except JobError as error:
            assert str(error)


@pytest.mark.parametrize("name", OF_NODE)
def test_a_damaged_file_of_a_jobs_folder(tmp_path, name):
    path, content = tmp_path / "jobs/fails-1", OF_NODE[name]
    shutil.copytree(CAPTURED, path)
    (path / "logs").mkdir(exist_ok=True)
    text = (CAPTURED / name).read_text() if content is None else json.dumps(content)
    more = {"devices": [0], "secret_files": ["events.json", "../x"], "secret_env": {"KEY": "correct horse"}}
    more |= {"metrics_folder": "/nowhere", "base_env": {"HOME": "/"}, "candidates": [["n1", "10.0.0.1"]]}
    more |= {"container": {"runtime": "podman", "program": "/nowhere/podman"}, "token": "correct horse"}
    text = json.dumps({**json.loads(text), **more}) if name == "node_plan.json" else text
    for damage in (text.encode(), *damaged(text, 32)):
        (path / name).write_bytes(damage)
        of_job_folder(path)
