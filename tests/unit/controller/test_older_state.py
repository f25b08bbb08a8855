"""Records of a job are read again; those of newer versions are refused with a finding, and stay as they are."""

from __future__ import annotations

import json
import re
import shutil
import time
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.base import state_format
from ansible.module_utils.trainyard.base.findings import FindingsError, UnusableError
from ansible.module_utils.trainyard.base.shapes import named
from ansible.module_utils.trainyard.job.record.excluded_hosts import HealthCheck
from ansible.module_utils.trainyard.job.run.wire.answers import NODE
from ansible.module_utils.trainyard_controller.cluster import upgrade_table
from ansible.module_utils.trainyard_controller.job import cleaning, run_choice, run_overview
from ansible.module_utils.trainyard_controller.job.reporting import report
from ansible.module_utils.trainyard_controller.nodes import cached_facts
from ansible.module_utils.trainyard_controller.runs import excluded_record, run_folder, saved_state
from ansible.module_utils.trainyard_node.job.record.secrets import forget_secrets
from ansible.module_utils.trainyard_node.job.run import folder_removal, job_folder, job_life
from ansible.module_utils.trainyard_node.job.run.ranks import folders
from ansible.module_utils.trainyard_node.machine.as_user import JobError
from job_samples import node_facts

CAPTURED = Path(__file__).resolve().parents[2] / "fixtures/run"
REFUSED = r"has format 2, and this version reads format 1(.|\n)*use a newer checkout.*docs/upgrade.md"


@pytest.fixture
def run_dir(tmp_path):
    """The folder of a run that was recorded, in a folder of runs."""
    source = CAPTURED / "controller"
    job_id = json.loads((source / "plan.json").read_text())["job_id"]
    return Path(shutil.copytree(source, tmp_path / "runs" / job_id))


@pytest.fixture
def job_dir(tmp_path):
    """The folder of the same job on its first node, which other users may not read."""
    return Path(shutil.copytree(CAPTURED / "node", tmp_path / "jobs" / "fails-1"))


def change(path, **content):
    path.write_text(json.dumps({**(json.loads(path.read_text()) if path.exists() else {}), **content}))


def test_a_run_is_listed_chosen_and_compared(run_dir):
    listed = run_overview.list_runs(run_dir.parent, None, {})
    assert [(run["id"], run["state"]) for run in listed["runs"]] == [(run_dir.name, "failed")]
    assert "not read" not in listed["text"]
    found = run_choice.find(run_dir.parent, job_name="fails")
    assert (found["job_id"], found["over"], found["note"]) == (run_dir.name, True, "")
    shutil.copytree(run_dir, run_dir.with_name("again"))
    change(run_dir.with_name("again") / "plan.json", job_id="again")
    assert "failed" in run_overview.compare_jobs(run_dir.parent, [run_dir.name, "again"])


def test_a_job_that_nobody_recorded_is_explained(run_dir, job_dir):
    (run_dir / "summary.json").unlink()
    answer = {**job_folder.status(job_dir), "left": 0}
    assert answer["monitor"] and answer["cluster"]
    found = report(run_dir, {"n1": answer, "n2": {"unreachable": True, "msg": "no route"}}, {})
    assert found.summary["state"] == "failed"
    assert "rank 1 on n2 failed first: exit code 7" in found.text
    assert json.loads((run_dir / "summary.json").read_text())["format"] == 1
    assert [each["job_id"] for each in job_life.list_folders(job_dir.parent)] == ["fails-1"]


def test_secrets_of_a_job_go(job_dir):
    plan = job_dir / "node_plan.json"
    change(plan, secret_env={"KEY": "correcthorse"}, secret_files=[])
    assert job_folder.known_secrets(job_dir)
    forget_secrets(job_dir)
    assert "correcthorse" not in plan.read_text()


@pytest.mark.parametrize("name", ["plan.json", "summary.json", "removed.json"])
def test_a_newer_run_is_refused_and_stays(run_dir, name):
    runs, file = run_dir.parent, run_dir / name
    change(file, format=2)
    content = file.read_bytes()
    with pytest.raises(FindingsError, match=REFUSED):
        report(run_dir, {}, {})
    if name != "removed.json":
        with pytest.raises(FindingsError, match=REFUSED):
            run_choice.find(runs, run_dir.name)
        text = run_overview.list_runs(runs, None, {})["text"]
        assert f"not read: {file}: it has format 2, and this version reads format 1; use a newer checkout" in text
        request = cleaning.Request(["n1"], ["n1"], runs, "", "", 0.0, of_runs=True, check=False)
        chosen = cleaning.choose_all(request, {"n1": {"folders": []}}, [], {}, 0.0)
        assert (chosen.records, f"{run_dir.name} stays: {file}: it has format 2" in chosen.text) == ([], True)
    assert file.read_bytes() == content


def test_a_newer_run_of_a_name_is_mentioned(run_dir):
    change(run_dir / "plan.json", format=2, launch={"trainyard": "v7.1-3-gabcdef0"})
    with pytest.raises(UnusableError, match=r"No run of job fails.*(.|\n)*not read: .*has format 2.*v7.1-3-gabcdef0"):
        run_choice.find(run_dir.parent, job_name="fails")
    change(run_dir / "plan.json", format=1)
    newer = Path(shutil.copytree(run_dir, run_dir.with_name("fails-99")))
    change(newer / "plan.json", format=2)
    found = run_choice.find(run_dir.parent, job_name="fails")
    assert found["job_id"] == run_dir.name
    assert re.match(f"not read: {newer}/plan.json: it has format 2", found["note"])


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", "[" * 100_000, '{"job_id": "a", "format": "x"}'])
def test_a_damaged_plan_is_listed(run_dir, content):
    (run_dir / "plan.json").write_text(content)
    listed = run_overview.list_runs(run_dir.parent, None, {})
    assert re.search(f"^(damaged: {run_dir}/plan.json: |not read: {run_dir}/plan.json: it has )", listed["text"], re.M)
    with pytest.raises(FindingsError, match=r"restore it, or remove the run|has format x"):
        saved_state.read_plan(run_dir)
    # A launch is just writing it.
    run_folder.prepare(run_dir, "fails", "launch.yml")
    assert "not read" not in run_overview.list_runs(run_dir.parent, None, {})["text"]


def test_files_of_a_job_go_only_with_a_record(run_dir, tmp_path):
    """A newer run that nobody recorded keeps its folders on the nodes."""
    change(run_dir / "plan.json", format=2)
    (run_dir / "summary.json").unlink()
    names = cleaning.unrecorded({"n1": [{"job_id": run_dir.name}]}, [], [], run_dir.parent)
    assert names == [run_dir.name]
    lines, findings = cleaning.record_ends(names, run_dir.parent, lambda *_: {}, 0, tmp_path / "excluded")
    assert (lines, [each.check for each in findings]) == ([], [f"how {run_dir.name} ended"])
    assert findings[0].action.endswith(f"or remove {run_dir}")


def test_other_files_of_newer_versions_are_refused(tmp_path):
    excluded, table = tmp_path / "excluded.json", tmp_path / "table.json"
    change(excluded, format=2, hosts={})
    change(table, format=2, nodes={})
    change(tmp_path / "submitted.json", format=2, engine_id="7")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for read in (
        lambda: excluded_record.read(excluded),
        lambda: excluded_record.update(excluded, {"n1": HealthCheck(["broken"])}, "a-1", ["n1"], False),
        lambda: upgrade_table.read_table(tmp_path),
        lambda: upgrade_table.note(tmp_path, {"n1": {"state": "done"}}, []),
        lambda: run_folder.read_submitted(tmp_path.parent, tmp_path.name),
    ):
        with pytest.raises(UnusableError, match=REFUSED):
            read()
    assert {path: path.read_bytes() for path in tmp_path.iterdir() if path in before} == before


def test_a_damaged_record_of_excluded_hosts_is_said(tmp_path):
    file = tmp_path / "excluded.json"
    assert excluded_record.update(file, {}, "a-1", ["n1"], False).warning == ""
    file.write_text('{"excluded": 7}')
    found = excluded_record.update(file, {"n1": HealthCheck(["broken"])}, "a-1", ["n1"], False)
    why = f"{file} is damaged: excluded is 7, expected an object"
    assert found.warning == f"the record of excluded hosts is begun anew: {why}"
    assert json.loads(file.read_text())["format"] == 1
    assert excluded_record.update(file, {}, "a-1", ["n1"], False).warning == ""


def test_facts_that_another_version_cached_are_read_anew(tmp_path):
    cache = cached_facts.CachedFacts(tmp_path / "facts.json", {}, {"n1": "10.0.0.1"})
    facts = named(node_facts(mpi=None, npu=None, fingerprint="x", boot_id=None, container=None), NODE)
    cache.add({"n1": facts})
    assert cache.read() == {"n1": facts}
    content = json.loads((tmp_path / "facts.json").read_text())
    for other in ({**content, "key": {**content["key"], "format": 2}}, [], {"key": content["key"]}):
        (tmp_path / "facts.json").write_text(json.dumps(other))
        assert cache.read() == {}


def test_written_files_have_their_format(tmp_path):
    (tmp_path / "plan.json").write_text("{}")
    run_folder.note_removed(tmp_path, {"n1": time.time()})
    run_folder.note_submitted(tmp_path, "7")
    upgrade_table.note(tmp_path, {"n1": {"state": "pending", "why": ""}}, [["n1"]])
    for name in ("removed.json", "submitted.json", "table.json"):
        assert json.loads((tmp_path / name).read_text())["format"] == 1


def test_a_newer_jobs_folder_is_refused(job_dir):
    change(job_dir / "node_plan.json", format=2)
    with pytest.raises(JobError, match=r"it has format 2, and this version reads format 1; use the checkout"):
        job_folder.status(job_dir)
    # It still counts as a job, and its user can end and remove it.
    assert folders.record(job_dir) is not None
    assert folder_removal.remove(job_dir)


@pytest.mark.parametrize(
    ("content", "why"),
    [({}, ""), ({"format": 1}, ""), ([], "no JSON object")]
    + [({"format": each}, "has format") for each in (2, 0, -1, 1.0, True, "1", None, [1])],
)
def test_formats_that_are_read(content, why):
    assert why in state_format.misread(content, state_format.PLAN)
    assert bool(why) == bool(state_format.misread(content, state_format.PLAN))
