"""The list of all runs of a controller, and two jobs compared."""

import json

import pytest
from ansible.module_utils.trainyard.base.findings import UnusableError
from ansible.module_utils.trainyard.report import run_list
from ansible.module_utils.trainyard_controller.job import run_overview
from ansible_run import run_ansible
from job_samples import make_job, make_plan, member, saved_plan, saved_record, saved_verification

PLAN = {**make_plan(make_job(), [member(0), member(1)]).as_dict(), "launch": {"by": "jane@laptop"}}
GOODPUT = {"share": 0.5, "productive_s": 30.0, "steps": 20.0, "lost_steps": 20.0}
RECORD = saved_record(
    PLAN["job_id"],
    state="failed",
    started=1795000100.0,
    elapsed_s=61.0,
    metrics={"step": 40.0, "loss": 0.25},
    goodput=GOODPUT,
)
REPORT = saved_verification("verify-1", "lab")


def test_a_job_with_a_record_has_its_state_progress_and_goodput():
    run = run_list.job(PLAN, RECORD)
    assert (run.state, run.progress, run.goodput, run.nodes, run.ranks) == ("failed", "step 40 loss 0.25", 0.5, 2, 2)
    assert (run.started, run.launched_by, run.where) == (1795000100.0, "jane@laptop", "n1")


@pytest.mark.parametrize(
    ("record", "line", "state"),
    [
        (None, None, "unknown"),
        (None, "2/2 ranks running   step 4", "running"),
        # The record of an interrupted watch.
        ({**RECORD, "state": "running"}, None, "unknown"),
    ],
)
def test_a_job_without_a_final_record_is_running_only_if_its_head_reports_so(record, line, state):
    run = run_list.job(PLAN, record, line)
    assert (run.state, run.progress.startswith("2/2")) == (state, line is not None)


def test_runs_are_selected_by_state_name_and_age_with_running_ones_first():
    old, new = run_list.job(PLAN, RECORD), run_list.verification(REPORT)
    running = run_list.job({**PLAN, "job_id": "digits-2"}, None, "1/1")
    every = [old, new, running]
    assert run_list.selected(every, 1795000200.0) == [running, old, new]
    assert run_list.selected(every, 1795000200.0, state="pass") == [new]
    assert run_list.selected(every, 1795000200.0, name="digits", state="failed") == [old]
    assert run_list.selected([old, new], 1795000200.0, days=150 / 86400) == [old]


def test_drills_verifications_and_their_jobs_are_apart_from_jobs():
    plans = [{**PLAN, "job_id": f"x-{at}", "asked_by": by} for at, by in enumerate(["drill.yml", "pair_check.yml", ""])]
    every = [run_list.verification(REPORT), *(run_list.job(plan, RECORD) for plan in plans)]
    blocks = [block.splitlines() for block in run_list.text(every).split("\n\n")]
    assert [(block[0], [row.split()[0] for row in block[2:]]) for block in blocks] == [
        ("Jobs", ["x-2"]),
        ("Drills", ["x-0"]),
        ("Verifications", ["verify-1"]),
        ("Jobs of verifications and benchmarks", ["x-1"]),
    ]
    content = run_list.content(every, 1795000200.0)
    assert [kind["title"] for kind in content["kinds"]] == [block[0] for block in blocks]


def test_a_drill_is_one_row_with_its_result_and_its_page():
    of_drill = [run_list.job({**PLAN, "job_id": f"d-{at}", "asked_by": "drill.yml"}, RECORD) for at in range(3)]
    result = {"state": "pass", "headline": "survives: yes", "runs": [{"job_id": "d-0"}, {"job_id": "d-1"}]}
    still, drill = run_list.drills(of_drill, {"d-0": result})
    # The third one is of a drill that was interrupted.
    assert (still.id, still.state, still.page) == ("d-2", "failed", "report.html")
    assert (drill.id, drill.state, drill.progress, drill.page) == ("d-0", "pass", "survives: yes", "drill.html")


HERE = run_overview.Inventory("-i here", lambda host: host in ("n1", "n2"))


@pytest.mark.parametrize(
    ("hosts", "started_with", "state", "asked"),
    [
        (["n1", "n2"], "-i here", "unknown", True),
        (["m1", "m2"], "-i there", "other_inventory", False),
        # The hosts of another cluster may have the names of hosts here.
        (["n1", "n2"], "-i there", "other_inventory", True),
        # A plan of an earlier version does not have the inventory.
        (["m1", "m2"], "", "other_inventory", False),
        (["n1", "n2"], "", "unknown", True),
    ],
)
def test_a_job_of_another_inventory_is_not_unknown_and_its_hosts_are_not_asked(
    tmp_path, hosts, started_with, state, asked
):
    (tmp_path / "j-1/logs").mkdir(parents=True)
    plan = saved_plan("j-1", {host: [number] for number, host in enumerate(hosts)}, launch={"inventory": started_with})
    (tmp_path / "j-1/plan.json").write_text(json.dumps(plan))
    seen = []

    def ask(command, hosts, **_):
        seen.extend(hosts)
        return {host: {"running": {}, "ended": []} for host in hosts}

    found = run_overview.list_runs(tmp_path, ask, {}, HERE)
    assert ([run["state"] for run in found["runs"]], bool(seen)) == ([state], asked)
    assert set(seen) <= {"n1", "n2"}
    away = state == "other_inventory" and bool(started_with)
    assert ("other inventory" in found["text"]) == (state == "other_inventory")
    command = "1 run of another inventory: ansible-playbook playbooks/jobs.yml -i there"
    assert (command in found["text"]) == away and ("started with -i there" in found["text"]) == away
    assert ("playbooks/jobs.yml -i there" in (tmp_path / "index.html").read_text()) == away


def test_a_job_that_runs_or_has_ended_is_no_job_of_another_inventory():
    assert run_list.job(PLAN, RECORD, elsewhere=True).state == "failed"
    assert run_list.job(PLAN, None, "1/1", elsewhere=True).state == "running"


def test_two_plans_differ_in_settings_alone():
    job = {"job_command": ["python", "train.py"], "job_env": {"LR": "0.1", "SEED": "1"}}
    one = {**PLAN, "launch": {"job": job, "revision": "abc"}}
    other = make_plan(make_job(timeout=60), [member(0)]).as_dict()
    changed = {**job, "job_timeout": 60, "job_env": {"LR": "0.2", "SEED": "1"}}
    two = {**other, "job_id": "digits-9", "launch": {"job": changed, "revision": "abc"}}
    assert run_list.differences(one, two) == [
        ("job_env.LR", "0.1", "0.2"),
        ("world_size", "2", "1"),
        ("hosts", "n1, n2", "n1"),
        ("job_timeout", "", "60"),
    ]


@pytest.fixture
def runs(tmp_path):
    """Make a folder with a failed job, a job without a record, and a verification."""
    for job_id, record in (("digits-1", RECORD), ("digits-2", None)):
        folder = tmp_path / job_id
        folder.mkdir()
        (folder / "plan.json").write_text(json.dumps(PLAN).replace(PLAN["job_id"], job_id))
        (folder / "logs").mkdir()
        if record:
            (folder / "summary.json").write_text(json.dumps({**record, "job_id": job_id}))
    (tmp_path / "verify-1").mkdir()
    (tmp_path / "verify-1" / "report.json").write_text(json.dumps(REPORT))
    return tmp_path


def test_heads_are_asked_about_jobs_without_a_record_alone(runs):
    asked = {}

    def ask(command, hosts):
        asked.update(hosts)
        return {"n1": {"running": {"digits-2": "2/2 ranks running"}}}

    found = run_overview.list_runs(runs, ask, {"state": "running"})
    assert [run["id"] for run in found["runs"]] == ["digits-2"]
    assert [job["job_id"] for job in asked["n1"]["jobs"]] == ["digits-2"]
    page = (runs / "index.html").read_text()
    assert all(f'href="{name}/report.html"' in page for name in ("digits-1", "digits-2", "verify-1"))


def test_a_head_without_an_answer_is_named(runs):
    found = run_overview.list_runs(runs, lambda *_: {"n1": {"unreachable": True, "msg": "timed out"}}, {})
    assert "not known: digits-2, as n1: timed out" in found["text"]


def test_what_cannot_be_compared_is_named(runs):
    with pytest.raises(UnusableError, match="1 jobs to compare"):
        run_overview.compare_jobs(runs, ["digits-1"])
    with pytest.raises(UnusableError, match="verify-1 is no job; expected: the id of one"):
        run_overview.compare_jobs(runs, ["digits-1", "verify-1"])
    (runs / "digits-1" / "metrics.jsonl").write_text('{"step": 1.0, "loss": 2.0}\n{"step": 2.0, "loss": 1.0}\n')
    assert "no setting differs" in run_overview.compare_jobs(runs, ["digits-1", "digits-2"])
    content = (runs / "compare.html").read_text()
    assert content.count('<svg class="curve linear"') == 1 and "No setting differs." in content


def test_the_playbook_lists_and_compares(runs):
    (runs / "digits-2" / "summary.json").write_text(json.dumps({**RECORD, "state": "succeeded", "job_id": "digits-2"}))
    call = ["ansible-playbook", "playbooks/jobs.yml", "-i", "inventories/localhost", "-e", f"trainyard_runs={runs}"]
    run_ansible(*call).expect(0, "digits-1 failed", "digits-2 succeeded", "verify-1 pass", f"page {runs}/index.html")
    run_ansible(*call, "-e", "jobs_compare=[digits-1, digits-2]").expect(0, "no setting differs")
    run_ansible(*call, "-e", "jobs_compare=[digits-1]").expect(2, "1 jobs to compare")


def test_the_playbook_names_the_other_inventory_and_asks_none_of_its_hosts(tmp_path):
    (tmp_path / "far-1/logs").mkdir(parents=True)
    plan = saved_plan("far-1", {"gpu7": [0]}, launch={"inventory": "-i inventories/big"})
    (tmp_path / "far-1/plan.json").write_text(json.dumps(plan))
    call = ["ansible-playbook", "playbooks/jobs.yml", "-i", "inventories/localhost", "-e", f"trainyard_runs={tmp_path}"]
    done = run_ansible(*call, "-e", "jobs_state=other_inventory")
    done.expect(0, "far-1 other inventory", "started with -i inventories/big", "playbooks/jobs.yml -i inventories/big")
    assert "not known" not in done.text and "gpu7" not in done.text
