"""From its end to its removal: what playbooks say of one run on this machine, and what they leave as it is."""

import json
import os
import re
import shutil
import sys

import pytest
from ansible_run import run_ansible
from job_samples import saved_verification
from test_interrupts import INVENTORY

# Tests side by side on one machine have jobs of their own names: a job's id is its name and the second.
NAME = f"tiny{os.getpid()}"
JOB = {"job_name": NAME, "job_launcher": "direct", "job_ranks_per_node": 1, "job_devices": "none", "job_venv": "",
       "job_packages": [], "job_command": ["/bin/sh", "-c", "seq 9000 >model.pt; echo step 1/1 loss 0.5"],
       "job_outputs": ["*.pt"], "job_min_disk_mib": 1}  # fmt: skip


class Site:
    def __init__(self, folder):
        self.runs, self.state, self.inventory = folder / "runs", folder / "state", folder / "inventory.yml"
        self.inventory.write_text(INVENTORY.format(python=sys.executable))

    def play(self, playbook, *options, **variables):
        """Run a playbook; returns its exit status, and its output on one line."""
        given = {"trainyard_runs": str(self.runs), "trainyard_state": str(self.state), **variables}
        done = run_ansible("ansible-playbook", playbook, "-i", str(self.inventory), "-e", json.dumps(given), *options)
        return done.rc, done.text

    def succeed(self, playbook, *options, **variables):
        """Run a playbook that must succeed, and return its output."""
        status, output = self.play(playbook, *options, **variables)
        assert status == 0, output
        return output


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    return Site(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def ended(site):
    """The folder of a run that succeeded."""
    site.succeed("launch.yml", **JOB)
    [folder] = [path.parent for path in site.runs.glob("*/plan.json")]
    return folder


def content(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_outputs_are_brought_home_whole(site, ended):
    brought = ended / "outputs" / "here" / "model.pt"
    assert brought.read_text().split() == [str(number) for number in range(1, 9001)]
    assert 'href="outputs/here/model.pt"' in (ended / "report.html").read_text()
    brought.unlink()
    assert f"outputs {ended}/outputs: 1 file" in site.succeed("playbooks/logs.yml", job_id=ended.name)
    assert brought.exists()


def test_a_secret_in_another_variable_stands_in_no_file(site, ended):
    """The launch is refused; neither the screen nor a file of a run has the value, which the ranks get."""
    script = 'test "$SHORT" = abc && test $(printf %s "$LONG" | wc -c) = 13 && echo step 1/1 loss 0.5'
    job = {**JOB, "job_name": f"{NAME}-s", "job_command": ["/bin/sh", "-c", script], "job_outputs": []}
    job |= {"job_secret_env": {"SHORT": "abc", "LONG": "correct horse"}}
    env = {"U": "{{ job_secret_env.SHORT }}", "V": "https://x:{{ job_secret_env.LONG }}@h"}
    command = ["/bin/true", "--key={{ job_secret_env.LONG }}"]
    status, refused = site.play("launch.yml", "--check", **{**job, "job_env": env, "job_command": command})
    for place, name in (("job_env.U", "SHORT"), ("job_env.V", "LONG"), ("job_command[1]", "LONG")):
        assert status == 2 and f"{place} has the value of {name} in job_secret_env" in refused, refused
    said = site.succeed("launch.yml", "--check", **job) + site.succeed("launch.yml", **job)
    runs = list(site.runs.glob(f"{NAME}-s-*"))
    states = [
        json.loads((run / "summary.json").read_text())["state"] for run in runs if (run / "summary.json").exists()
    ]
    files = [path.read_bytes() for run in runs for path in run.rglob("*") if path.is_file()]
    assert states == ["succeeded"] and "LONG=(secret)" in said
    assert not [text for text in (refused.encode(), said.encode(), *files) if b"correct horse" in text]
    for run in runs:
        shutil.rmtree(run)


def test_a_record_outlives_the_folders_on_the_nodes(site, ended):
    job_id, before = ended.name, content(ended)
    assert json.loads(before["summary.json"])["state"] == "succeeded"
    removed = rf"Removed the folders of 1 job \(\d MiB on all nodes\)\. {job_id} on here"
    assert re.search(removed, site.succeed("playbooks/clean.yml", job_name=NAME))
    assert not (site.state / "jobs" / job_id).exists()
    assert list(json.loads((ended / "removed.json").read_text())["hosts"]) == ["here"]
    for book in ("status", "stop"):
        said = site.succeed(f"playbooks/{book}.yml", job_id=job_id)
        assert (f"Job {job_id} had ended before." in said) == (book == "stop")
        assert f"Job {job_id} succeeded in 0:0" in said
        assert "what it had left was removed by playbooks/clean.yml on 20" in said and "UTC: here" in said
    after = content(ended)
    del after["removed.json"]
    assert after == before


def test_a_lost_job_is_no_success(site, ended):
    """A run that was never asked for how it ended, and whose folders are gone."""
    lost = site.runs / "lost-20261122-000000"
    lost.mkdir()
    plan = json.loads((ended / "plan.json").read_text())
    gone = {"job_id": lost.name, "job_name": "lost", "job_dir": str(site.state / "jobs" / lost.name)}
    (lost / "plan.json").write_text(json.dumps({**plan, **gone}))
    status, said = site.play("playbooks/stop.yml", job_name="lost")
    assert status == 2 and f"Job {lost.name} is lost: no node knows of it any more." in said, said


def test_old_runs_go_from_the_controller_when_asked(site, ended):
    """The newest verification stays, and so do cached facts, a baseline and other files."""
    for name, age in (("verify-20261101-000000", 200), ("verify-20261102-000000", 100)):
        (site.runs / name).mkdir()
        report = site.runs / name / "report.json"
        report.write_text(json.dumps(saved_verification(name, "trainyard")))
        os.utime(report, (report.stat().st_mtime - age,) * 2)
    (site.runs / "handover").mkdir()
    (site.runs / "baseline.json").write_text("{}")
    before = {path.name for path in site.runs.iterdir()}
    goes = [name for name in before if name.startswith(("lost-", NAME))] + ["verify-20261101-000000"]
    listed = " ".join(sorted(goes))
    clean = ("playbooks/clean.yml", "-e", "clean_days=0", "-e", "clean_runs=true")
    assert f"Would remove {len(goes)} runs (0 MiB) from {site.runs}. {listed}" in site.succeed(*clean, "--check")
    assert {path.name for path in site.runs.iterdir()} == before
    assert f"Removed {len(goes)} runs (0 MiB) from {site.runs}. {listed}" in site.succeed(*clean)
    assert {path.name for path in site.runs.iterdir()} == before - set(goes)
    assert any(name.startswith(".facts-") for name in before - set(goes))
