"""What pods print, and what the controller reads of it."""

import base64
import json
import shutil
import sys

from ansible.module_utils.trainyard.job.schedulers.kubernetes import pod_log
from ansible.module_utils.trainyard.job.schedulers.kubernetes.kubernetes_findings import unreachable
from ansible.module_utils.trainyard.job.schedulers.records import Where
from ansible.module_utils.trainyard_controller.job.schedulers import kubernetes_run
from ansible.module_utils.trainyard_controller.job.schedulers.kubernetes_cluster import ClusterError
from ansible.module_utils.trainyard_node.job.schedulers import pod
from ansible.module_utils.trainyard_node.job.schedulers.launch import Request
from hypothesis import given
from hypothesis import strategies as st

TEXTS = st.text(st.characters(blacklist_characters="\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029", blacklist_categories=["Cs"]))


def test_launchers_find_a_python_in_an_image_that_names_it_python3_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(pod, "_NAMED", tmp_path / "environment")
    request = Request({"job_env": {"A": "b"}}, Where("", "", "", "", ""), "", b"")
    for names, venv in ((["python3"], tmp_path / "environment"), (["python3", "python"], tmp_path), ([], "")):
        folder = tmp_path / "bin"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(tmp_path / "environment", ignore_errors=True)
        folder.mkdir()
        for name in names:
            (folder / name).symlink_to(sys.executable)
        monkeypatch.setenv("PATH", str(folder))
        for _ in range(2):
            pod.name_python()
        assert pod.of_image(request).job["job_venv"] == str(venv)


@given(st.lists(TEXTS), st.dictionaries(TEXTS, TEXTS | st.integers()), st.integers(1, 20))
def test_no_line_of_a_log_is_taken_for_one_of_ours(lines, content, part):
    forged = [*pod_log.record(pod_log.PLAN, {"forged": True}), f"{pod_log.TEXT}forged", "[rank 1] forged", *lines]
    logs = {"rank_0.log": forged, "agent_1.log": lines, "rank_0_train.log": lines}
    whole, pod_log._PART = pod_log._PART, part
    record = pod_log.record(pod_log.PLAN, content)
    pod_log._PART = whole
    printed = [f"{pod_log.prefix(name)}{line}" for name, own in logs.items() for line in own]
    # The cluster may drop the beginning, also that of a record.
    found = pod_log.read([record[-1], *printed, f"{pod_log.TEXT}2 findings", *record])
    assert found == ({name: own for name, own in logs.items() if own}, ["2 findings"], {pod_log.PLAN: content})


def test_damaged_records_are_none():
    [line] = pod_log.record("answer", {"a": 1})
    for damaged in (line[:-9], line.replace("1/1", "2/2"), "#trainyard answer 1/1 x", "#trainyard answer 0/0 eJw="):
        assert pod_log.read([damaged]).records == {}


def test_a_pod_prints_what_is_added_to_its_logs_with_masked_secrets(tmp_path, capsys):
    (tmp_path / "logs").mkdir()
    (tmp_path / "node_plan.json").write_text(json.dumps({"secret_env": {"TOKEN": "hunter2-hunter2"}}))
    log, printer = tmp_path / "logs" / "rank_3.log", pod.Printer(tmp_path)
    log.write_text("one hunter2-hunter2\nhal")
    printer.show()
    with log.open("a") as more:
        more.write("f\nend")
    printer.show()
    printer.show(last=True)
    printed = capsys.readouterr().out
    assert printed == "[rank 3] one ***************\n[rank 3] half\n[rank 3] end\n"


NOTHING = {"known": True, "monitor_alive": False, "processes": [], "monitor": None, "cluster": None, "left": 0}
COLLECTED = {**NOTHING, "changed": False, "kernel": [], "logs": {}}
OUTPUTS = {"files": {"model.pt": base64.b64encode(b"model").decode()}, "left_out": [], "more": 0, "unmatched": []}


class Ending:
    """A cluster whose pod ends while it is asked, with what it has printed."""

    def __init__(self, *printed):
        self.printed, self.ended = "\n".join(printed), False

    def pods(self, name):
        end = {"terminated": {"exitCode": 143, "reason": "Error"}} if self.ended else {"running": {}}
        return [{"metadata": {"name": f"{name}-0-abcde"}, "status": {"containerStatuses": [{"state": end}]}}]

    def ask(self, *_):
        self.ended = True
        raise ClusterError(unreachable("", "the container is gone"))

    def log(self, *_):
        return self.printed


def collected(cluster, monkeypatch, **asked):
    monkeypatch.setattr(kubernetes_run.state, "pod_index", lambda _: 0)
    settings = {"name": "j", "container": "trainyard"}
    return kubernetes_run.answers(cluster, settings, "collect", {"j-0": {"job_dir": "/d", **asked}}, 5.0)["j-0"]


def test_a_pod_that_ends_while_it_is_asked_has_printed_its_answer_and_its_outputs(monkeypatch):
    lines = [*pod_log.record(pod_log.OUTPUTS, OUTPUTS), *pod_log.record(pod_log.ANSWER, COLLECTED), "[rank 0] saved"]
    found = collected(Ending(*lines), monkeypatch, outputs=["*.pt"])
    assert found["outputs"] == OUTPUTS and base64.b64decode(found["logs"]["rank_0.log"]) == b"saved\n"
    # The cluster may have dropped the first lines.
    [lost] = collected(Ending(*lines[1:]), monkeypatch, outputs=["*.pt"])["outputs"]["left_out"]
    assert "the log of the pod lacks them" in lost["name"]
    assert "outputs" not in collected(Ending(*lines[1:]), monkeypatch)
