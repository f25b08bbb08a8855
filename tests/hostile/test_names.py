"""Hostile names, wherever a name can go: hosts' in plans, files and pages, jobs' in units, folders and manifests."""

import html.parser
import json

import pytest
from ansible.module_utils.trainyard.cluster.hosts import can_name_a_node
from ansible.module_utils.trainyard.job import schedulers
from ansible.module_utils.trainyard.job.placement.hostfile import MpiHost, render
from ansible.module_utils.trainyard.job.plan.plan import build, node_plans
from ansible.module_utils.trainyard.job.record.job_ids import is_valid
from ansible.module_utils.trainyard.job.schedulers import ssh
from ansible.module_utils.trainyard.report.job_text import Story
from ansible.module_utils.trainyard_controller.runs.pages import job_page
from job_samples import job_file, make_job, make_plan, member

NAMES = [
    "localhost", "n1 slots=9", "n1\nn2 slots=8", "n1#", "-oProxyCommand=touch owned", "$(touch owned)", "`id`", "a;b",
    "../../etc/passwd", "<script>alert(1)</script>", "</script><img src=x onerror=alert(1)>", "a\"b", "a'b", "a\\b",
    "\x1b]52;c;aGk=\x07", "a\x00b", "\u202emoc", "%n", "{{ 7 * 7 }}", "a b", "*", "", "é" * 200,
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_no_hostile_name_stands_in_etc_hosts_or_in_a_hostfile(name):
    assert not can_name_a_node(name)
    if name == "localhost":
        return
    for flavor in ("openmpi", "mpich", "deepspeed"):
        with pytest.raises(ValueError, match="is no host name or address"):
            render([MpiHost(name, 8)], flavor)


class Tags(html.parser.HTMLParser):
    """The elements of a page, with the names of their attributes."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, sorted(name for name, _ in attrs)))


def tags(page):
    parser = Tags()
    parser.feed(page)
    return parser.found


def ended(name):
    """The record of a job one of whose nodes has this name, and says that a rank failed there."""
    plan = make_plan(make_job(launcher="direct"), [member(0), member(1)]).as_dict()
    told = json.loads(json.dumps(plan).replace('"n2"', json.dumps(name)))
    of_rank = {"host": name, "process": "rank1", "ranks": [1], "rank": 1, "exit_code": 7, "signal": None}
    failure = {**of_rank, "kind": "exit", "result": "exit-code", "time": 1070.0, "reason": name}
    end = {"state": "failed", "finished": 1072.5, "failure": failure}
    restart = {"elapsed_s": 3.0, "reason": name, "restarted": name, "failure": failure}
    cluster = {"started": 1000.0, "elapsed_s": 72.5, "metrics": {"step": 4.0}, "ranks_running": 0, "end": end}
    cluster["restarts"] = {"history": [restart]}
    answer = {"known": True, "monitor_alive": False, "left": 0, "cluster": cluster, "processes": []}
    answer["monitor"] = {"started": 1000.0, "end": end}
    return schedulers.summarize(told, ssh.state(told, {"n1": answer}, {name: name}, {}))


@pytest.mark.parametrize("name", NAMES)
def test_a_page_has_the_same_elements_whatever_a_host_is_called(name):
    series = [{"elapsed_s": 1.0, "step": 1.0, "loss": 0.5}, {"elapsed_s": 2.0, "step": 2.0, "loss": 0.4}]

    def made(host):
        happened, tail = [f"rank 1 on {host} failed"], [f"x {host}"]
        story = Story("failed.", happened, [], tail, "rank_1.log", host, "hint", ["x"], [host])
        return job_page(ended(host), series, story, {"command": f"x {host}", "job": {"job_name": host}})

    page = made(name)
    assert tags(page) == tags(made("n2"))
    assert "<script>alert" not in page and "<img" not in page


@pytest.mark.parametrize("launcher", ["torchrun", "direct", "mpirun", "mindspore", "msrun", "oneflow"])
@pytest.mark.parametrize("name", NAMES)
def test_a_host_is_never_an_option_or_a_word_of_a_command(launcher, name):
    """Ranks find each other by addresses; what a machine calls itself counts for nothing."""
    members = [member(0), member(1, hostname=name)]
    job = make_job(launcher=launcher)
    plan, findings = build(job, "digits-1", "", "/var/lib/trainyard", members)
    usual, _ = build(job, "digits-1", "", "/var/lib/trainyard", [member(0), member(1)])
    if plan is None or usual is None:
        assert findings
        return

    def commands(made):
        return [process["argv"] for part in node_plans(made.as_dict()).values() for process in part["processes"]]

    assert commands(plan) == commands(usual)


@pytest.mark.parametrize("name", NAMES)
def test_a_job_has_no_hostile_name(name):
    job, findings = schedulers.parse({**job_file(), "job_name": name})
    if name == "localhost":
        assert job is not None and is_valid(name)
        return
    assert job is None and "job_name" in {finding.check for finding in findings}
    # The name of a folder never becomes part of a unit's name.
    assert not is_valid(name)
