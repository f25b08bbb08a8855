"""Runs that would do nothing, or less than was meant, are a finding before anything is done."""

import json
import re
import sys

import pytest
import yaml
from ansible.module_utils.trainyard.inputs.nothing_to_do import HOSTS, RUNS, Run, findings
from ansible_run import PROJECT, run_ansible


def test_a_useful_run_has_no_finding():
    assert findings(Run("site.yml", ["n1"], ["n1"], tags=["all"])) == []
    assert findings(Run("site.yml", ["n1", "n2"], ["n1"], limit="n1,localhost", controller=True)) == []
    assert findings(Run("pair_check.yml", ["n1", "n2"], ["n1", "n2"], check=True)) == []
    assert findings(Run("site.yml", ["n1"], ["n1"], tags=["nvidia"], known=["nvidia"])) == []
    # Other checks find these hosts.
    assert findings(Run("launch.yml", tags=["always"])) == []


ONE, TWO = (["n1"], ["n1"]), ["n1", "n2"]


@pytest.mark.parametrize(
    ("run", "check", "found", "action"),
    [
        (
            Run("site.yml", has_group=False),
            "hosts",
            "no group compute in the inventory",
            "or name another inventory (-i)",
        ),
        (Run("validate.yml"), "hosts", "no host in group compute", "or name another inventory (-i)"),
        (Run("pair_check.yml", named="nosuch"), "hosts", "no host in pair_hosts 'nosuch'", "correct pair_hosts"),
        (Run("pair_check.yml", *ONE), "hosts", "only n1 in group compute", "verify.yml verifies a single node"),
        (Run("verify.yml", *ONE, check=True), "--check", "verify.yml with --check", "leave out --check"),
        (Run("site.yml", *ONE, start_at="Start"), "--start-at-task", "'Start', which leaves out", "leave it out"),
        (Run("site.yml", *ONE, tags=["pytorhc"], known=["pytorch"]), "--tags", "the tag pytorhc", "--tags pytorch"),
        (Run("verify.yml", *ONE, tags=["reach"], known=["verify"]), "--tags", "the tag reach", '["reach"]'),
        (
            Run("launch.yml", tags=["x"], runs=False),
            "--tags",
            "no task of launch.yml has the tag x",
            "leave out --tags",
        ),
        (
            Run("site.yml", *ONE, tags=["all"], skip_tags=["a", "b"], known=["a", "b"], runs=False),
            *("--tags", "--skip-tags a,b leaves no task of site.yml", "correct them"),
        ),
        (Run("validate.yml", TWO, [], limit="localhost"), "--limit", "localhost leaves none of the group", "of n1, n2"),
        (Run("pair_check.yml", TWO, ["n1"], limit="n1,localhost"), "--limit", "leaves n1 of the group", "of n1, n2"),
        (
            Run("site.yml", *ONE, limit="n1", controller=True, controller_left=False),
            *("--limit", "--limit n1 leaves out localhost", "--limit n1,localhost"),
        ),
        (
            Run("launch.yml", limit="n1", controller=True, controller_left=False),
            *("--limit", "--limit n1 leaves out localhost", "leave out --limit: -e job_hosts=NAME"),
        ),
        (
            Run("stop.yml", limit="n1", controller=True, controller_left=False),
            *("--limit", "--limit n1 leaves out localhost", "leave out --limit: -e job_id=ID"),
        ),
        (Run("lock.yml"), "hosts", "no host in group compute", "or name another inventory (-i)"),
        (
            Run("site.yml", *ONE, tags=["all"], skip_tags=["always"], known=["always"]),
            *("--skip-tags", "always, which leaves out tasks that check", "leave out --skip-tags always"),
        ),
    ],
)
def test_a_useless_run_is_one_finding(run, check, found, action):
    (finding,) = findings(run)
    assert finding.check == check and found in finding.found and action in finding.action


def test_every_playbook_that_works_on_a_group_needs_hosts_in_it():
    """A play without hosts is skipped, and the playbook would end well."""
    paths = [PROJECT / "site.yml", PROJECT / "launch.yml", *PROJECT.glob("playbooks/*.yml")]
    books = {path.name: [play.get("hosts", "") for play in yaml.safe_load(path.read_text())] for path in paths}
    on_group = {
        name for name, hosts in books.items() if any(re.search(r"\b(?:compute|nvidia)\b", each) for each in hosts)
    }
    assert on_group <= set(HOSTS) and len(on_group) > 10 and set(HOSTS) | set(RUNS) <= set(books)


def playbook(tmp_path, book, compute, *options):
    """Call a playbook of the project on composed hosts."""
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "trainyard_become": False}
    inventory = {"all": {"hosts": {"other": here}}}
    if compute is not None:
        inventory["compute"] = {"hosts": dict.fromkeys(compute, here)}
    path = tmp_path / "hosts.json"
    path.write_text(json.dumps(inventory))
    options = ["-i", str(path), "-e", f"trainyard_runs={tmp_path}/runs", *options]
    return run_ansible("ansible-playbook", str(PROJECT / book), *options)


@pytest.mark.parametrize(
    ("book", "compute", "options", "found"),
    [
        ("site.yml", [], ["--tags=pytorhc"], ["no host in group compute", "no task of site.yml has the tag pytorhc"]),
        (
            *("playbooks/verify.yml", None, ["--check"]),
            ["no group compute in the inventory", "verify.yml with --check, which measures nothing"],
        ),
        (
            *("launch.yml", ["n1"], ["-e", "@jobs/digits.yml", "--tags=x", "--start-at-task=Start"]),
            ["no task of launch.yml has the tag x", "'Start', which leaves out the tasks before it"],
        ),
        ("playbooks/validate.yml", ["n1"], ["--limit", "other"], ["--limit other leaves none of the group compute"]),
    ],
)
def test_playbooks_that_would_do_nothing_fail(tmp_path, book, compute, options, found):
    run = playbook(tmp_path, book, compute, *options)
    run.expect(2, *(f"found {each}" for each in found))
    headline = "1 finding in what was given." if len(found) == 1 else f"{len(found)} findings in what was given."
    assert run.text.count(f"{headline} Nothing was done.") == 1 and "PLAY" not in run.text, run.output
    assert not (tmp_path / "runs").exists()
