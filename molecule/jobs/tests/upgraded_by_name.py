"""Jobs and records of an earlier commit meet the present checkout: minutes and another environment, so by name.

pytest tests/upgraded_by_name.py in the scenario's folder; TRAINYARD_EARLIER names another commit. Those before
4cf59646 need Ansible 2.19, and with it PYTHON=python3.11.
"""

import contextlib
import json
import os
import signal
import subprocess

import pytest
from lab_jobs import PROJECT, WORKER, wait_until

EARLIER = os.environ.get("TRAINYARD_EARLIER") or "4cf59646"
SECRET = "correct-horse-battery"  # noqa: S105
PHASES = ["drift", "devices"]


class Older:
    """The tree of an earlier commit, with its own environment."""

    def __init__(self, tree, play):
        self.tree, self._play = tree, play
        self._env = {**os.environ, "ANSIBLE_CONFIG": str(tree / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
        self._env["PATH"] = f"{tree / '.venv/bin'}:{os.environ['PATH']}"

    def call(self, playbook, *arguments, **extra_vars):
        """Start a playbook of the earlier commit; return its process and its output."""
        given = json.dumps({"trainyard_runs": str(self._play.runs), **extra_vars})
        argv = ["ansible-playbook", playbook, "-i", str(self._play.inventory), *arguments, "-e", given]
        output = self.tree / f"output-{len(list(self.tree.glob('output-*')))}"
        with output.open("wb") as sink:
            options = {"stdin": subprocess.DEVNULL, "stdout": sink, "stderr": sink, "start_new_session": True}
            return subprocess.Popen(argv, cwd=self.tree, env=self._env, **options), output

    def launch(self, name, **extra_vars):
        """Launch a job and leave it, as when the controller is lost; return its id."""
        known = {path.name for path in self._play.runs.glob(f"{name}-*")}
        settings = {"job_name": name, "job_nodes": 2, "job_timeout": 3000, **extra_vars}
        process, output = self.call("launch.yml", "-e", f"@{self.tree / WORKER.relative_to(PROJECT)}", **settings)

        def runs():
            found = {path.parent.name for path in self._play.runs.glob(f"{name}-*/plan.json")} - known
            ended = process.poll() not in (None, 0)
            assert not ended and "finding" not in output.read_text(), output.read_text()
            return found if "2/2 ranks running" in output.read_text() else None

        (job_id,) = wait_until(runs, f"{name} runs, launched by {EARLIER}: see {output}")
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return job_id


@pytest.fixture(scope="module")
def older(tmp_path_factory, play):
    found = subprocess.run(["git", "-C", str(PROJECT), "cat-file", "-e", f"{EARLIER}^{{commit}}"], check=False)
    assert found.returncode == 0, (
        f"the history here has no commit {EARLIER}; expected a checkout with it: "
        "git fetch --unshallow, or name another one with TRAINYARD_EARLIER"
    )
    tree = tmp_path_factory.mktemp("older")
    archive = subprocess.run(["git", "-C", str(PROJECT), "archive", EARLIER], check=True, capture_output=True).stdout
    subprocess.run(["tar", "x", "-C", str(tree)], input=archive, check=True)
    # Some commits need collections, too.
    collections = [".collections/.complete"] if ".collections/.complete:" in (tree / "Makefile").read_text() else []
    made = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "VENV")}
    subprocess.run(["make", "-s", ".venv/.controller", *collections], cwd=tree, env=made, check=True)
    return Older(tree, play)


@pytest.fixture(scope="module")
def jobs(older, play, left):
    """Jobs of the earlier commit: one to stop, one that fails, and one that starts again; by their names."""
    again = {"job_max_restarts": 1, "job_command": ["python3", "worker.py", "--resume"]}
    found = {
        "runs": older.launch("runs", job_secret_env={"WORKER_SECRET": SECRET}),
        "fails": older.launch("fails"),
        "again": older.launch("again", **again),
    }
    yield found
    for job_id in found.values():
        if left(job_id):
            play("playbooks/stop.yml", job_id=job_id).wait()


def files(node, job_id):
    """Return the text of all JSON files in a job's folder on a node."""
    return node.host.run(f"find /var/lib/trainyard/jobs/{job_id} -name '*.json' -exec cat {{}} +").stdout


def test_older_jobs_are_listed_and_described(play, jobs):
    listed = play("playbooks/jobs.yml").expect(0)
    assert "not read" not in listed.output
    for job_id in jobs.values():
        assert f"{job_id} running" in listed.text
    for playbook in ("status", "logs"):
        shown = play(f"playbooks/{playbook}.yml", job_id=jobs["runs"]).expect(0, "is running", "2/2 ranks running")
        assert "last lines of" in shown.output
    play("playbooks/stacks.yml", job_id=jobs["runs"]).expect(0, "2 ranks (0, 1) each sleeps")


def test_the_end_of_an_older_job_is_watched_and_explained(play, nodes, jobs):
    watch = play("playbooks/watch.yml", job_id=jobs["fails"]).trains()
    nodes["n2"].kill_rank(jobs["fails"], 1)
    watch.expect(2, f"Job {jobs['fails']} failed", "rank 1 on n2 failed first: killed by SIGKILL")
    record = json.loads((play.runs / jobs["fails"] / "summary.json").read_text())
    assert (record["format"], record["failure"]["rank"]) == (1, 1)
    assert {node["state"] for node in record["nodes"]} == {"ended"}


def test_an_older_job_starts_again_by_its_own_monitors(play, nodes, jobs):
    watch = play("playbooks/watch.yml", job_id=jobs["again"]).trains()
    before = nodes["n1"].ranks(jobs["again"])
    nodes["n2"].kill_rank(jobs["again"], 1)
    watch.wait_for("so the whole job starts again")
    wait_until(lambda: (now := nodes["n1"].ranks(jobs["again"])) and not set(now) & set(before), "new ranks on n1")
    play("playbooks/stop.yml", job_id=jobs["again"]).expect(0, "was stopped")
    watch.wait()
    record = json.loads((play.runs / jobs["again"] / "summary.json").read_text())
    assert len(record["restarts"]) == 1 and record["restarts"][0]["failure"]["rank"] == 1


def test_a_newer_job_of_the_name_runs_beside_an_older_one(play, jobs, left):
    command = ["python3", "worker.py", "--steps", "3"]
    newer = play.launch(WORKER, job_name="runs", job_nodes=2, job_command=command).expect(0)
    ports = [
        json.loads((play.runs / each / "plan.json").read_text())["head"]["port"]
        for each in (newer.job_id, jobs["runs"])
    ]
    assert len(set(ports)) == 2 and set(left(jobs["runs"])) == {"n1", "n2"}
    # The one that runs precedes the newer one that has ended.
    play("playbooks/status.yml", job_name="runs").expect(0, f"Job {jobs['runs']} is running")


def test_a_newer_format_is_refused_on_the_controller_and_by_a_node(play, nodes, jobs, left):
    plan = play.runs / jobs["runs"] / "plan.json"
    content = plan.read_text()
    plan.write_text(json.dumps({**json.loads(content), "format": 2}))
    said = f"{plan}: it has format 2, and this version reads format 1"
    for playbook in ("status", "watch", "stop"):
        play(f"playbooks/{playbook}.yml", job_id=jobs["runs"]).expect(2, said, "use a newer checkout")
    play("playbooks/jobs.yml").expect(0, f"not read: {said}")
    plan.write_text(content)
    folder = f"/var/lib/trainyard/jobs/{jobs['runs']}"
    script = (
        f"cd {folder} && python3 - <<'E'\nimport json\n"
        "import glob\npath = (glob.glob('hosts/*/node_plan.json') + ['node_plan.json'])[0]\n"
        "found = json.load(open(path))\nfound['format'] = 2\njson.dump(found, open(path, 'w'))\nE"
    )
    nodes["n2"].host.check_output(script)
    play("playbooks/status.yml", job_id=jobs["runs"]).expect(0, "it has format 2, and this version reads format 1")
    nodes["n2"].host.check_output(script.replace("= 2", "= 1"))
    assert set(left(jobs["runs"])) == {"n1", "n2"}


def test_an_older_job_is_stopped_and_cleaned_and_its_secrets_go(play, nodes, jobs, left):
    assert SECRET in files(nodes["n1"], jobs["runs"])
    archive = play.folder / "debug.tar.gz"
    play("playbooks/debug.yml", job_id=jobs["runs"], debug_file=str(archive)).expect(0)
    packed = subprocess.run(["tar", "xzOf", str(archive)], check=True, capture_output=True).stdout
    assert SECRET.encode() not in packed
    play("playbooks/stop.yml", job_id=jobs["runs"]).expect(0, "was stopped", "no process of the job is left on n1, n2")
    assert left(jobs["runs"]) == {}
    assert SECRET not in files(nodes["n1"], jobs["runs"]) + files(nodes["n2"], jobs["runs"])
    play("playbooks/clean.yml", job_id=jobs["runs"]).expect(0, f"{jobs['runs']} on n1, n2")
    assert files(nodes["n1"], jobs["runs"]) == ""
    play("playbooks/status.yml", job_id=jobs["runs"]).expect(0, "was stopped", "removed by playbooks/clean.yml")


def test_a_verification_compares_with_an_older_one(older, play, jobs):
    process, output = older.call("playbooks/verify.yml", verify_phases=PHASES)
    assert process.wait(300) in (0, 2, 3), output.read_text()
    before = {path.parent for path in play.runs.glob("verify-*/report.json")}
    assert len(before) == 1, output.read_text()
    play("playbooks/verify.yml", verify_phases=PHASES).wait()
    compared = play("playbooks/compare.yml").wait()
    assert f"{before.pop().name} (" in compared.output and " got worse" in compared.output
    listed = play("playbooks/jobs.yml").expect(0)
    assert listed.output.count("verify-") == 2 and "not read" not in listed.output
