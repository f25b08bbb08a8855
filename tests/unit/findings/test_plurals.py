"""One node is no nodes: numbers of things go through counted()."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.findings.findings import counted
from ansible.module_utils.trainyard.job.plan.plan import describe
from ansible.module_utils.trainyard.report import job_text
from job_samples import make_job, make_plan, member, summary_of

PROJECT = Path(__file__).resolve().parents[3]
# A placeholder, and the things that it counts.
THINGS = (
    "nodes|hosts|ranks|processes|processors|devices|packages|pairs|measurements|values|findings|pods|lines|rows|times"
    "|days|elements|sizes|jobs|checks|names|characters"
)
COUNTS = re.compile(rf"\{{(?!counted)[^{{}}]*\}} (?:\w+ )?(?:{THINGS})\b")
# Always several, of a size that this project gives, or no number at all.
KNOWN = (
    "nvidia-smi lists GPU",
    "packages of the component",
    "rank 0 is listed",
    "is listed {listed[twice[0]]} times",
    "{half.busbw / half.algbw:.2f} times algbw",
    "it {expected:.2f} times",
    "expected: two of the",
    "days * DAY_S",
    "other packages",
    "MOST_SERVER_ID",
    "device {device} {count} times",
    "of {len(server.server_id)} characters",
    "at most {room} characters",
    "at most {shape.most} characters",
    "has {len(value)} names, expected at most",
    "ranks running",
    "for {len(placement.nodes)} nodes",
    "of {len(hosts)} nodes",
    "names resolve",
    "ways between {len(asked)} nodes",
    "if len(nodes) != 1",
    "take'} jobs",
    "have'} jobs",
    "devices of the configuration",
    "devices; only the former",
    "lines, of which ssh-keygen reads",
    "the {MOST_PAIRS} slowest",
    "a cell for each pair",
    "if len(hosts) > 6",
    "{len(ranks)} ranks ({spans(ranks)})",
    "at least {LEAST_SECRET} printable characters",
)


@pytest.mark.parametrize(
    ("number", "words", "text"),
    [
        (0, ["node"], "0 nodes"),
        (1, ["node"], "1 node"),
        (2, ["node"], "2 nodes"),
        (1, ["process", "processes"], "1 process"),
        (2, ["process", "processes"], "2 processes"),
    ],
)
def test_things_are_counted(number, words, text):
    assert counted(number, *words) == text


def test_the_plan_and_the_end_of_a_job_with_one_rank_on_one_node():
    plan = make_plan(make_job(), [member(0)]).as_dict()
    assert describe(plan).startswith("Plan of digits-20261120-101500: 1 rank on 1 node, launcher torchrun\n")
    summary = summary_of(plan, {})
    summary |= {"state": "succeeded", "max_restarts": 1}
    told = job_text.explain(summary, "runs/x", "/d", [])
    assert "succeeded in 0:00:00: 1 rank on 1 node.\n" in told and "started again 0 of at most 1 time\n" in told


@pytest.mark.parametrize("path", sorted((PROJECT / "module_utils").rglob("*.py")), ids=lambda path: path.name)
def test_no_text_counts_by_itself(path):
    found = [line.strip() for line in path.read_text().splitlines() if COUNTS.search(line)]
    assert [line for line in found if not any(part in line for part in KNOWN)] == []
