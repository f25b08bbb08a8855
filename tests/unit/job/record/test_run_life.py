"""From its end to its removal: what playbooks say of one run on this machine, and what they leave as it is."""

import json
import os
import re
import shutil
import sys
import tarfile

import pytest
from ansible.module_utils.trainyard_node.job.run import processes
from job_cluster import PATIENCE_S, wait_for
from job_samples import saved_verification
from test_interrupts import INVENTORY, play

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
        screen = self.inventory.with_name("screen")
        status = play(playbook, self.inventory, screen, given, *options).wait(PATIENCE_S)
        return status, " ".join(screen.read_text().split())

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


def test_root_starts_no_ranks_that_would_be_roots(site, ended):
    """Here root would be the caller, who may; where Ansible becomes root, the ranks are another user's."""
    before = set(site.runs.iterdir())
    status, said = site.play("launch.yml", **{**JOB, "trainyard_become": True, "trainyard_user": "root"})
    assert status == 2 and "trainyard_user found root expected an ordinary user, as a job is other" in said, said
    [refused] = set(site.runs.iterdir()) - before
    assert "nothing was started" in said and (refused / "findings.json").exists() and not (refused / "logs").exists()
    shutil.rmtree(refused)


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


@pytest.mark.parametrize("book", ["stop", "clean"])
def test_stop_and_clean_guess_no_job(site, ended, book):
    before = content(ended)
    status, said = site.play(f"playbooks/{book}.yml")
    assert status == 2 and "found neither job_id" in said and content(ended) == before, said


def test_what_an_issue_needs_is_in_one_file(site, ended, tmp_path):
    before = content(ended)
    other = site.runs / "other-1"
    shutil.copytree(ended, other)
    plan = json.loads((other / "plan.json").read_text())
    gone = {**plan["nodes"][0], "host": "gone", "processes": []}
    (other / "plan.json").write_text(json.dumps({**plan, "job_id": other.name, "nodes": [*plan["nodes"], gone]}))
    with (other / "logs" / "rank_0.log").open("a") as log:
        log.write("the words of a stranger, login\n")
    secrets = {"site_api_token": "words of a stranger", "debug_file": str(tmp_path)}
    said = site.succeed("playbooks/debug.yml", job_id=other.name, **secrets)
    path = tmp_path / f"trainyard-debug-{other.name}.tar.gz"
    assert f"Debug archive of {other.name}: {path} (" in said and "no answer gone; its README" in said, said
    with tarfile.open(path) as tar:
        files = {each.name.partition("/")[2]: tar.extractfile(each).read().decode() for each in tar.getmembers()}
    assert path.stat().st_mode & 0o777 == 0o600
    assert {"README", "versions.json", "run/plan.json", "run/summary.json", "run/logs/rank_0.log"} < set(files)
    assert "\n  gone: gone is not in the inventory" in files["README"]
    facts = json.loads(files["nodes/here/facts.json"])
    assert facts["host"] == "here" and {"kernel", "os", "driver", "cuda", "nccl", "memlock"} < set(facts["facts"])
    assert "nodes/here/journal.txt" in files and "the *******************, login" in files["run/logs/rank_0.log"]
    shutil.rmtree(other)
    assert content(ended) == before


GATE = "import pathlib, time\nwhile not pathlib.Path({file!r}).exists(): time.sleep(0.05)"


def launch_unwatched(site, **variables):
    """Launch a job of a name that two have, and return the folder of its run."""
    before = set(site.runs.iterdir())
    site.succeed("launch.yml", **{**JOB, "job_name": f"two-{NAME}", "job_wait": False, **variables})
    [folder] = {path.parent for path in site.runs.glob(f"two-{NAME}-*/plan.json")} - before
    return folder


@pytest.fixture(scope="module")
def older(site, ended, tmp_path_factory):
    """The folder of a run that goes on until it is stopped."""
    gate = str(tmp_path_factory.mktemp("gate") / "never")
    folder = launch_unwatched(site, job_command=[sys.executable, "-c", GATE.format(file=gate)])
    yield folder
    # The test that stops it may run in another worker.
    processes.end(folder.name, grace_s=0.0)


@pytest.fixture(scope="module")
def newer(site, older):
    """The folder of a run with the same name that has ended, which nobody has watched."""
    folder = launch_unwatched(site)
    cluster = site.state / "jobs" / folder.name / "cluster.json"
    wait_for(lambda: json.loads(cluster.read_text()).get("end"), "the job's end")
    wait_for(lambda: processes.of_job(folder.name) == [], "its processes to end")
    assert not (folder / "summary.json").exists()
    return folder


@pytest.fixture(scope="module")
def cleaned(site, newer):
    """The output of clean.yml for the newer run."""
    return site.succeed("playbooks/clean.yml", job_id=newer.name)


def test_clean_records_how_an_unwatched_job_ended_first(site, newer, cleaned):
    assert f"Recorded how {newer.name} ended, which nobody had watched: succeeded." in cleaned
    assert json.loads((newer / "summary.json").read_text())["state"] == "succeeded"
    assert (newer / "logs" / "rank_0.log").read_text() == "step 1/1 loss 0.5\n" and (newer / "report.html").exists()
    assert not (site.state / "jobs" / newer.name).exists()
    assert f"Job {newer.name} succeeded in 0:0" in site.succeed("playbooks/status.yml", job_id=newer.name)


def test_stop_by_name_finds_the_older_run_that_still_runs(site, older, newer, cleaned):
    assert f"Job {older.name} is running." in site.succeed("playbooks/status.yml", job_name=f"two-{NAME}")
    assert f"Job {older.name} was stopped" in site.succeed("playbooks/stop.yml", job_name=f"two-{NAME}")
    for folder in (older, newer):
        shutil.rmtree(folder)


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
