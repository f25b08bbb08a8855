"""Obstacles to the start of a job: a full disk, a monitor that cannot be loaded."""

import getpass
from types import SimpleNamespace

from ansible.module_utils.trainyard.job.schedulers.records import Source
from ansible.module_utils.trainyard_controller.job import planning
from ansible.module_utils.trainyard_node.job.run import job_life
from ansible.module_utils.trainyard_node.machine import as_user


def test_a_full_disk_is_a_finding_and_leaves_no_half_of_a_plan(tmp_path):
    run_dir = tmp_path / "digits-1"
    run_dir.mkdir()
    (run_dir / "plan.json").symlink_to("/dev/full")
    requested = SimpleNamespace(asked_by="me", check=False, runs_dir=tmp_path, job={})
    planned = SimpleNamespace(as_dict=lambda: {"job_id": "digits-1"}, submitted={})
    [finding] = planning._written(requested, planned, Source(()), run_dir, []).findings
    assert finding.found == f"{run_dir}: No space left on device"
    assert finding.action == f"make room in {tmp_path}, or set trainyard_runs to another folder"
    assert not run_dir.exists()


def test_without_systemd_a_monitor_says_why_it_cannot_be_loaded(tmp_path):
    (tmp_path / "trainyard.pyz").write_text("import no_such_module\n")
    me = getpass.getuser()
    complaint = job_life._start_monitor(tmp_path, {"job_id": "digits-1"}, me, as_user.named(me))
    assert complaint.startswith("the monitor ended before it reported: Traceback")
    assert complaint.endswith("No module named 'no_such_module'")
