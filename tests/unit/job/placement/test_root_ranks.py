"""Ranks that would run as root: refused where Ansible becomes root, a warning where it is root already."""

import os

import pytest
from ansible.module_utils.trainyard.job import schedulers
from ansible.module_utils.trainyard.job.placement import root_ranks
from ansible.module_utils.trainyard.job.plan.plan import warnings_text
from ansible.module_utils.trainyard.job.run.wire.answers import checked
from ansible.module_utils.trainyard.job.schedulers.records import Source, Where
from ansible.module_utils.trainyard_node.cluster.node_identity import read_node
from ansible.module_utils.trainyard_node.machine.tree import Tree
from job_samples import make_job, member


def planned(user, *uids):
    """Return the plan of a job of this user on nodes with agents of these users."""
    members = [member(number, **facts) for number, facts in enumerate({"uid": uid} for uid in uids)]
    where = Where("digits-1", "now", "", "/var/lib/trainyard", user)
    plan, findings = schedulers.plan(make_job(), members, Source(["train.py"]), where)
    assert findings == []
    return plan.as_dict()


@pytest.mark.parametrize(
    ("user", "uids", "hosts"),
    [
        ("root", (0, 0), ["n1", "n2"]),
        ("0", (0, 1000), ["n1"]),
        # An agent without root starts ranks as itself, an agent of root starts them as the user.
        ("root", (1000,), []),
        ("train", (0,), []),
    ],
)
def test_ranks_as_root_are_a_warning(user, uids, hosts):
    assert [each["host"] for each in planned(user, *uids)["warnings"]] == hosts


def test_the_warning_has_the_hosts_and_an_action():
    text = warnings_text(planned("root", 0, 0))
    assert text.count("ranks' user on n1, n2") == 1
    assert "call ansible-playbook as an ordinary user" in text


def test_ranks_as_root_are_refused_where_ansible_becomes_root():
    assert [each.found for each in root_ranks.findings("root", becomes=True)] == ["root"]
    assert root_ranks.findings("root", becomes=False) == root_ranks.findings("train", becomes=True) == []


def test_the_plan_gets_the_user_of_the_agent():
    """Without it among the facts that are kept, no launch had the warning."""
    node = read_node(Tree(), packages=[], venv=None, user=None)
    assert checked("probe", {"node": node}, "n1")["node"]["uid"] == os.geteuid()
