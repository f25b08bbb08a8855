"""Every command that is printed can be pasted: a shell and Ansible's own parsing read it as it was meant."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.base.adhoc import ansible, inventory_options, playbook
from ansible.module_utils.trainyard.inputs import nothing_to_do
from ansible.module_utils.trainyard.job.record import removable_jobs
from ansible.module_utils.trainyard.report import job_text
from ansible.module_utils.trainyard.verify import drift, reach, software, stragglers
from ansible.module_utils.trainyard.verify.drift_clocks import check_clocks
from ansible.module_utils.trainyard.verify.measured import benchmark_checks, straggler_checks
from ansible.module_utils.trainyard.verify.phases import phase_outcome
from ansible.module_utils.trainyard.verify.report import build
from filters import FILTERS

PROJECT = Path(__file__).resolve().parents[3]
INVENTORIES = ["inventories/mine", "../my clusters/it's one", "n1,n2,"]
HOSTS = ["n1", "gpu 2", "it's"]
# Ansible's own parsing, in a process of its own as it makes that a controller: options and variables of each call.
PARSE = """
import json, sys
from ansible import context
from ansible.cli.adhoc import AdHocCLI
from ansible.cli.playbook import PlaybookCLI
from ansible.parsing.dataloader import DataLoader
from ansible.utils.vars import load_extra_vars

calls = []
for words in json.load(sys.stdin):
    cli = (PlaybookCLI if words[0] == "ansible-playbook" else AdHocCLI)(words)
    cli.init_parser()
    options = cli.parser.parse_args(words[1:])
    context.CLIARGS = {"extra_vars": options.extra_vars}
    load_extra_vars.extra_vars = None
    names = ("args", "inventory", "subset", "module_args")
    given = {name: getattr(options, name, None) for name in names}
    calls.append({**given, "variables": load_extra_vars(DataLoader())})
json.dump(calls, sys.stdout)
"""


@pytest.fixture(scope="module")
def pasted(tmp_path_factory):
    """Paste a line into a shell in which ansible and ansible-playbook only note their arguments; return these."""
    folder = tmp_path_factory.mktemp("bin")
    for name in ("ansible", "ansible-playbook"):
        (folder / name).write_text('#!/bin/sh\nprintf "%s\\0" "${0##*/}" "$@" >> "$NOTED"\n')
        (folder / name).chmod(stat.S_IRWXU)

    def paste(line):
        noted = folder / "noted"
        noted.write_text("")
        environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "NOTED": str(noted)}
        done = subprocess.run(["bash", "-c", line], env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), line
        return noted.read_text().split("\0")[:-1]

    return paste


@pytest.fixture
def parsed(pasted):
    """Paste commands, and return what Ansible makes of each: its options and the variables of -e."""

    def parse(*lines):
        calls = json.dumps([pasted(line) for line in lines])
        done = subprocess.run([sys.executable, "-c", PARSE], input=calls, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return parse


MEANT = [
    {"verify_phases": ["bandwidth", "stragglers"]},
    {"job_id": "train-20261124-101500"},
    {"job_id": "a b", "check_framework": "pytorch"},
    {"one": "it's", "two": 'say "x"', "three": "a=b c=d", "four": "$HOME `id` \\ !x"},
    {"number": 3, "no": False, "text": "0123", "list": ["a b", "c'd"], "map": {"a": {"b": None}}, "empty": ""},
]


def test_variables_arrive_as_they_were_meant(parsed):
    inventory = inventory_options(INVENTORIES)
    calls = parsed(*(playbook("playbooks/verify.yml", inventory, variables) for variables in MEANT))
    assert [call["variables"] for call in calls] == MEANT
    assert all((call["args"], call["inventory"]) == (["playbooks/verify.yml"], INVENTORIES) for call in calls)


def test_blanks_and_quotes_of_hosts_and_limits_arrive(parsed):
    play, adhoc = parsed(
        playbook("my books/x.yml", "", limit="n1,it's,!gpu 2"),
        ansible(HOSTS, inventory_options(INVENTORIES), "ansible.builtin.shell", "echo 'a b' \"$HOME\""),
    )
    assert (play["subset"], play["args"]) == ("n1,it's,!gpu 2", ["my books/x.yml"])
    assert (adhoc["args"], adhoc["module_args"]) == (",".join(HOSTS), "echo 'a b' \"$HOME\"")
    assert adhoc["inventory"] == INVENTORIES


def commands(inventory):
    """Return every command that checks, findings, summaries and closing texts print, by where it stands."""
    again = playbook("playbooks/verify.yml", inventory, {"verify_phases": ["bandwidth"]}, limit="n1,gpu 2")
    nodes = [
        {
            "host": host, "hostname": host, "hardware": [], "environments": {"pytorch": {"torch": version}},
            "facts": {"kernel": version, "mtu": None, "torch": version},
        }
        for host, version in zip(HOSTS, "123")
    ]  # fmt: skip
    broken = {host: {"failed": True, "msg": "it broke"} for host in HOSTS}
    rows = {HOSTS[0]: {"row": {HOSTS[1]: False}, "failures": [], "logins": 1}, **broken}
    speeds = [(HOSTS[0], HOSTS[1], 9.0, 0), (HOSTS[1], HOSTS[2], 1.0, 0), (HOSTS[0], HOSTS[2], 9.0, 3)]
    pairs = [
        {"hosts": hosts, "round": number, "busbw": busbw, "wrong": wrong, "error": ""}
        for number, (*hosts, busbw, wrong) in enumerate(speeds)
    ]
    checked = stragglers.verify(HOSTS, pairs, inventory=inventory)
    record = {
        "state": "fail", "reason": "slow", "collective": "all_reduce", "backend": "gloo", "hosts": HOSTS, "ranks": 3,
        "busbw_largest": None, "sizes": [], "expected": None, "path": None, "job_id": "",
    }  # fmt: skip
    checks = [
        *drift.check_nodes(nodes, inventory=inventory),
        *check_clocks({HOSTS[0]: None}, 1.0, inventory),
        *reach.verify(broken, {}, {}, {}, rows, user="train", inventory=inventory)[0],
        *reach.check_ssh(rows, "train", inventory),
        *benchmark_checks(record, again),
        *straggler_checks(checked, again),
        *software.check_role("pytorch", HOSTS, {HOSTS[0]: {"fault": "gone", "all": False}}, again),
    ]
    report = build(
        report_id="verify-1", cluster="lab", inventory=inventory, started=0, finished=1, hosts=HOSTS, nodes=[],
        phases=[{"name": "bandwidth", **phase_outcome(None, "bandwidth", "", again)}], benchmarks=[record],
        stragglers=None, versions={},
    )  # fmt: skip
    texts = [text for check in checks for text in (check.command, check.action)]
    texts += [row["command"] for row in report["commands"]] + [report["first"]["action"]]
    _, findings = removable_jobs.choose({"n1": [FOLDER]}, "train-1", None, inventory=inventory)
    texts += [finding.action for finding in findings]
    texts.append(job_text.explain(SUMMARY, "runs/train-1", "/jobs/train-1", [], inventory=inventory))
    texts.append(FILTERS["printed_command"]("playbooks/collective_check.yml", inventory, {"check_framework": "mpi"}))
    pattern = re.compile(r"\bansible(?:-playbook \S+\.yml| ).*?(?=; does it answer|$)", re.M)
    return [found for text in texts for found in pattern.findall(text)]


FOLDER = removable_jobs.Folder("train-1", "/jobs/train-1", 5.0, running=True)
SUMMARY = {
    "job_id": "train-1", "state": "failed", "elapsed_s": 1.0, "world_size": 1, "finished": 1.0, "max_restarts": 0,
    "nodes": [{"host": "n1", "state": "running", "why": ""}],
    **dict.fromkeys(("loss_not_a_number", "metrics", "checkpoints", "failure", "nccl", "restarts", "goodput")),
}  # fmt: skip


def test_every_printed_command_can_be_pasted(parsed):
    lines = commands(inventory_options(INVENTORIES))
    assert len(lines) > 20
    calls = parsed(*lines)
    for line, call in zip(lines, calls):
        assert call["inventory"] == INVENTORIES, line
        # A host's name is one word of the pattern, whatever stands in it, and a playbook is one that there is.
        patterns = {*HOSTS, "compute", ",".join(HOSTS), ",".join(HOSTS[:2])}
        books = call["args"] if isinstance(call["args"], list) else []
        assert (PROJECT / books[0]).is_file() if books else call["args"] in patterns, line
        assert call["variables"].get("verify_phases") in (None, ["bandwidth"], ["reach"]), line
    assert {"gpu 2", "it's"} <= {call["args"] for call in calls if isinstance(call["args"], str)}


def test_the_phase_in_the_place_of_a_tag_can_be_pasted(parsed):
    """The option that replaces --tags is printed alone, without a command."""
    run = nothing_to_do.Run(playbook="verify.yml", hosts=["n1"], tags=["reach"], known=["verify"])
    (finding,) = nothing_to_do.findings(run)
    (call,) = parsed(f"ansible-playbook playbooks/verify.yml {finding.action}")
    assert call["variables"] == {"verify_phases": ["reach"]}
