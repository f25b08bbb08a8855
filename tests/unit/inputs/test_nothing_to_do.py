"""Runs in which nothing would be done, or less than was meant, are a finding before anything is done."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.inputs.nothing_to_do import Run, findings

PROJECT = Path(__file__).resolve().parents[3]


def told(run):
    return [(finding.check, finding.found, finding.action) for finding in findings(run)]


def test_a_useful_run_has_no_finding():
    assert findings(Run("site.yml", ["n1"], ["n1"], tags=["all"])) == []
    assert findings(Run("site.yml", ["n1", "n2"], ["n1"], limit="n1,localhost", controller=True)) == []
    assert findings(Run("pair_check.yml", ["n1", "n2"], ["n1", "n2"], check=True)) == []
    assert findings(Run("site.yml", ["n1"], ["n1"], tags=["nvidia"], known=["nvidia"])) == []
    # Where hosts are checked otherwise.
    assert findings(Run("launch.yml", tags=["always"])) == []


@pytest.mark.parametrize(
    ("run", "check", "found", "action"),
    [
        (Run("site.yml", has_group=False), "hosts", "no group compute in the inventory",
         "put hosts into the group compute, or name another inventory (-i)"),
        (Run("validate.yml"), "hosts", "no host in group compute",
         "put hosts into the group compute, or name another inventory (-i)"),
        (Run("pair_check.yml", named="nosuch"), "hosts", "no host in pair_hosts 'nosuch'", "correct pair_hosts"),
        (Run("pair_check.yml", ["n1"], ["n1"]), "hosts", "only n1 in group compute",
         "name more of them; playbooks/verify.yml verifies a single node"),
        (Run("verify.yml", ["n1"], ["n1"], check=True), "--check", "verify.yml with --check, which measures nothing",
         "leave out --check: nothing is installed or configured by it"),
        (Run("site.yml", ["n1"], ["n1"], start_at="Start"), "--start-at-task",
         "'Start', which leaves out the tasks before it", "leave it out: what is done already is left as it is"),
        (Run("site.yml", ["n1"], ["n1"], tags=["pytorhc"], known=["pytorch"]), "--tags",
         "no task of site.yml has the tag pytorhc", "--tags pytorch"),
        (Run("verify.yml", ["n1"], ["n1"], tags=["reach"], known=["verify"]), "--tags",
         "no task of verify.yml has the tag reach", "-e '{\"verify_phases\": [\"reach\"]}'"),
        (Run("launch.yml", tags=["x"], runs=False), "--tags", "no task of launch.yml has the tag x",
         "leave out --tags"),
        (Run("site.yml", ["n1"], ["n1"], tags=["all"], skip_tags=["a", "b"], known=["a", "b"], runs=False), "--tags",
         "--skip-tags a,b leaves no task of site.yml", "correct them"),
        (Run("validate.yml", ["n1", "n2"], [], limit="localhost"), "--limit",
         "--limit localhost leaves none of the group compute", "name others of n1, n2, or leave out --limit"),
        (Run("pair_check.yml", ["n1", "n2"], ["n1"], limit="n1,localhost"), "--limit",
         "--limit n1,localhost leaves n1 of the group compute", "name others of n1, n2, or leave out --limit"),
        (Run("site.yml", ["n1"], ["n1"], limit="n1", controller=True, controller_left=False), "--limit",
         "--limit n1 leaves out localhost, where jobs are planned and their runs are kept",
         "--limit n1,localhost; or none: job_hosts and job_nodes choose the hosts of a job, job_id or job_name a run"),
    ],
)  # fmt: skip
def test_a_useless_run_is_one_finding(run, check, found, action):
    assert told(run) == [(check, found, action)]


def playbook(tmp_path, book, compute, *options):
    """Call a playbook of the project on composed hosts; return its status and what it printed, on one line."""
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "trainyard_become": False}
    inventory = {"all": {"hosts": {"other": here}}}
    if compute is not None:
        inventory["compute"] = {"hosts": dict.fromkeys(compute, here)}
    path = tmp_path / "hosts.json"
    path.write_text(json.dumps(inventory))
    done = subprocess.run(
        ["ansible-playbook", str(PROJECT / book), "-i", str(path), "-e", f"trainyard_runs={tmp_path}/runs", *options],
        env={**os.environ, "ANSIBLE_CONFIG": str(PROJECT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"},
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, " ".join((done.stdout + done.stderr).split())


@pytest.mark.parametrize(
    ("book", "compute", "options", "found"),
    [
        ("site.yml", None, [], "no group compute in the inventory"),
        ("playbooks/validate.yml", [], [], "no host in group compute"),
        ("playbooks/verify.yml", None, [], "no group compute in the inventory"),
        ("playbooks/collective_benchmark.yml", ["n1"], ["-e", "benchmark_hosts=b"], "no host in benchmark_hosts 'b'"),
        ("playbooks/pair_check.yml", ["n1"], [], "only n1 in group compute"),
        ("playbooks/nvidia_reboot.yml", ["n1"], [], "no group nvidia in the inventory"),
        ("site.yml", ["n1"], ["--tags", "pytorhc"], "no task of site.yml has the tag pytorhc"),
        ("launch.yml", ["n1"], ["-e", "@jobs/digits.yml", "--tags", "x"], "no task of launch.yml has the tag x"),
        ("playbooks/verify.yml", ["n1"], ["--check"], "verify.yml with --check, which measures nothing"),
        ("site.yml", ["n1", "n2"], ["--limit", "n1"], "--limit n1 leaves out localhost"),
        ("playbooks/validate.yml", ["n1"], ["--limit", "other"], "--limit other leaves none of the group compute"),
    ],
)
def test_playbooks_that_would_do_nothing_fail(tmp_path, book, compute, options, found):
    status, said = playbook(tmp_path, book, compute, *options)
    assert status == 2, said
    assert said.count("1 finding in what was given. Nothing was done.") == 1, said
    assert f"found {found}" in said and "PLAY" not in said, said
    assert not (tmp_path / "runs").exists()


def test_a_limit_with_localhost_and_nodes_is_fine(tmp_path):
    options = ["--limit", "n1,localhost", "--tags", "validate"]
    status, said = playbook(tmp_path, "site.yml", ["n1", "n2"], *options)
    assert status == 0, said
    assert "1 node: " in said
    status, said = playbook(tmp_path, "playbooks/stop.yml", ["n1"], "-e", "job_id=x", "--limit", "n1,localhost")
    assert "leaves out localhost" not in said and "x" in said, said
