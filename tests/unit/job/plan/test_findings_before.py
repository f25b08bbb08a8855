"""What is found on composed clusters stays what it was before a job became one play.

tests/fixtures/golden/composed-findings.txt was first written by the planner of before that change (one module, run on
the controller), and was the same, byte by byte, with the one that came after it. Who changes a text renews it with
`make golden`.
"""

from __future__ import annotations

from ansible.module_utils.trainyard.job import schedulers
from job_samples import job_file, member, planned, texts

LAUNCHERS = ("direct", "torchrun", "mpirun", "mindspore", "msrun", "oneflow", "rank_table")

# Each a change of node_facts or of what a member is: (nodes, changed node, changes).
CLUSTERS = {
    "well": [{}, {}, {}],
    "one node": [{}],
    "gpus": [{"devices": 2}, {"devices": 2}, {"devices": 2}],
    "unequal gpus": [{"devices": 2}, {"devices": 1}, {"devices": 2}],
    "no gpus on one": [{"devices": 2}, {}, {"devices": 2}],
    "silent": [{}, {"unreachable": "Connection timed out"}, {"unreachable": "Connection timed out"}],
    "all silent": [{"unreachable": "no route to host"}] * 3,
    "no ports": [{"free_ports": []}, {}, {"free_ports": [20001]}],
    "same host name": [{"hostname": "node"}, {"hostname": "node"}, {}],
    "other packages": [
        {"packages": {"torch": "2.13.0"}},
        {"packages": {"torch": "2.12.1"}},
        {"packages": {"torch": "2.13.0"}},
    ],
    "lacking a package": [{"packages": {"torch": "2.13.0"}}, {}, {"packages": {"torch": "2.13.0"}}],
    "few cpus": [{"cpus": 1}, {"cpus": 1}, {"cpus": 64}],
    "bad env": [{"env": {"MASTER_ADDR": "10.0.0.9"}}, {"env": {"A B": "1"}}, {"env": {"OK": "x\0y"}}],
    "problems with devices": [
        {"accelerators": {"vendor": "nvidia", "devices": [], "problems": ["nvidia-smi did not answer"]}},
        {"devices": 1},
        {"devices": 1},
    ],
}

JOBS = {
    "plain": {},
    "two a node": {"ranks_per_node": 2},
    "eight a node": {"ranks_per_node": 8},
    "slots by host": {"slots": {"n1": 2, "n2": 1, "n9": 1}},
    "network": {"network": "10.77.0.0/16"},
    "network of nobody": {"network": "192.0.2.0/24"},
    "port": {"port": 29500},
    "own rendezvous": {"env": {"MASTER_ADDR": "10.0.0.1"}},
    "no script": {"command": ["python", "gone.py"]},
    "packages": {"packages": ["torch"]},
    "restarts": {"restarts": 3},
}


def cases():
    """Every job on every cluster for one launcher; for the others every cluster, and every job on one that is well."""
    for launcher in LAUNCHERS:
        for job in JOBS:
            for cluster in CLUSTERS:
                if launcher == "direct" or job == "plain" or cluster == "gpus":
                    yield launcher, job, cluster


def found(launcher, job, cluster):
    parsed, findings = schedulers.parse(job_file(launcher=launcher, **JOBS[job]))
    if parsed is None:
        return texts(findings)
    return texts(planned(parsed, [member(number, **changes) for number, changes in enumerate(CLUSTERS[cluster])])[1])


def test_findings_on_composed_clusters_are_those_of_before(golden):
    """Each finding once, with all cases in which it is among the findings."""
    where = {}
    for case in cases():
        for finding in found(*case):
            where.setdefault(finding, []).append(" / ".join(case))
    lines = [f"{' | '.join(finding)}\n" + "".join(f"    {case}\n" for case in where[finding]) for finding in where]
    assert len(lines) > 30
    golden("".join(lines), "composed-findings.txt")
