"""Metrics for Prometheus: what is rendered, the file by which node_exporter hears of a job, and the dashboard."""

import json
import os
import re
import signal
import stat
from pathlib import Path

from ansible.module_utils.trainyard.job.record import prometheus
from ansible.module_utils.trainyard_node.job.record.metrics_file import Textfile
from ansible.module_utils.trainyard_node.job.record.secrets import forget_secrets
from ansible.module_utils.trainyard_node.machine.json_files import read_json
from hypothesis import given
from hypothesis import strategies as st
from job_cluster import wait_for
from prometheus_client.parser import text_string_to_metric_families
from test_events import RESTART, state
from test_slow_ranks import NAMED

PROJECT = Path(__file__).resolve().parents[4]
DOCUMENT = PROJECT / "docs/events.md"
FULL = {
    "metrics": {"step": 40.0, "steps": 200.0, "epoch": 2.0, "loss": 1.25, "rate": 100.5, "lr": 0.001},
    "restarts": {"history": [RESTART], "budget": 3},
    "goodput": {"share": 0.97, "productive_s": 90.0, "steps": 40, "lost_steps": 0}, "left_s": 80.0,
    "checkpoints": {"place": "/data", "host": "n1", "unfinished": None, "problem": "",
                    "newest": {"name": "step_40", "step": 40, "epoch": None, "time": 1790000000.0, "size": 1}},
    "events": [{"to": "webhook a", "sent": 3, "waiting": 1, "lost": 0, "why": ""},
               {"to": "webhook a", "sent": 0, "waiting": 2, "lost": 4, "why": "answered 500"}],
    "slow_ranks": [{**NAMED, "host": "n4", "until_s": 200.0}, NAMED],
}  # fmt: skip


def read(text):
    """What Prometheus' own client reads: {name: [(labels without job_id, value)]}."""
    found = {}
    for family in text_string_to_metric_families(text):
        assert family.type == "gauge" and family.documentation
        for sample in family.samples:
            assert sample.labels.pop("job_id")
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def of_head(**changes):
    of_node = prometheus.node_samples("n1", {"ranks_running": 1}, 1, None)
    return prometheus.render("digits-1", of_node, prometheus.job_samples(state(**changes), "n1", "torchrun"))


def test_a_job_has_each_metric():
    found = read(of_head(**FULL))
    assert [labels["node"] for labels, _ in found.pop("trainyard_job_node_silent_seconds")] == ["n1", "n2"]
    samples = {name.removeprefix("trainyard_"): sample for name, (sample,) in found.items()}
    without_labels = {name.removeprefix("job_"): value for name, (labels, value) in samples.items() if not labels}
    assert without_labels == {
        **{"ready": 1, "elapsed_seconds": 10, "ranks": 2, "ranks_running": 2, "restarts": 1, "restarts_left": 2},
        **{
            "step": 40,
            "steps": 200,
            "epoch": 2,
            "loss": 1.25,
            "rate": 100.5,
            "goodput_ratio": 0.97,
            "left_seconds": 80,
        },
        **{"checkpoint_step": 40, "checkpoint_timestamp_seconds": 1790000000},
    }
    assert {name: sample for name, sample in samples.items() if sample[0]} == {
        "node_ranks": ({"node": "n1"}, 1),
        "node_ranks_running": ({"node": "n1"}, 1),
        "job_info": ({"head": "n1", "launcher": "torchrun"}, 1),
        "job_metric": ({"name": "lr"}, 0.001),
        "job_slow_rank": ({"node": "n3"}, 1),
        "job_events_waiting": ({"to": "webhook a"}, 3),
        "job_events_lost": ({"to": "webhook a"}, 4),
    }
    of_node = read(prometheus.render("digits-1", prometheus.node_samples("n2", {}, 1, 0.25)))
    assert of_node["trainyard_node_head_silent_seconds"] == [({"node": "n2"}, 0.2)]
    assert {*found, *of_node, "trainyard_job_node_silent_seconds"} == set(prometheus.HELP)


@given(st.text(max_size=40), st.floats(allow_nan=False, allow_infinity=False))
def test_any_name_is_one_label(name, value):
    text = prometheus.render("digits-1", {"trainyard_job_metric": [({"name": name}, value)]})
    # The parser ends lines where str.splitlines does, which neither Prometheus nor the format does.
    if len(text.splitlines()) == 3:
        assert read(text) == {"trainyard_job_metric": [({"name": name}, value)]}
    assert text.count("\n") == 3


def test_names_and_help_are_as_prometheus_advises():
    for name, text in prometheus.HELP.items():
        assert re.fullmatch(r"trainyard_(?:job|node)_[a-z_]+[a-z]", name) and text.endswith(".")
        # A gauge is neither a counter nor part of a histogram, and a time has its unit.
        assert not name.endswith(("_total", "_count", "_sum", "_bucket", "_ms", "_s"))
    document = DOCUMENT.read_text()
    assert [name for name in prometheus.HELP if f"`{name}`" not in document] == []


def test_the_dashboard_asks_for_metrics_that_there_are():
    dashboard = json.loads((PROJECT / "docs/grafana-trainyard.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    queries += [each["definition"] for each in dashboard["templating"]["list"] if each["type"] == "query"]
    asked = {name for query in queries for name in re.findall(r"\btrainyard_\w+", query)}
    assert asked <= set(prometheus.HELP) and len(asked) > 12
    # Panels lie within the grid and not over each other.
    taken = set()
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24 and not cells & taken, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_the_file_is_complete_and_readable(tmp_path, capsys):
    file = Textfile(str(tmp_path), "digits-1")
    assert file.due()
    before = os.umask(0o077)
    try:
        file.write("a 1\n")
    finally:
        os.umask(before)
    path = tmp_path / "trainyard_digits-1.prom"
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("a 1\n", 0o644)
    assert (file.due(), file.due(at_once=True)) == (False, True)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    file.remove()
    assert list(tmp_path.iterdir()) == []
    assert not Textfile("", "digits-1").due(at_once=True)
    gone = Textfile(str(tmp_path / "gone"), "digits-1")
    for _ in range(3):
        gone.write("a 1\n")
    # A missing folder is reported once.
    assert capsys.readouterr().out == f"metrics cannot be written to {tmp_path}/gone: No such file or directory\n"


def test_a_link_in_the_way_leads_nowhere(tmp_path):
    victim, path = tmp_path / "victim", tmp_path / "trainyard_digits-1.prom"
    victim.write_text("mine")
    path.symlink_to(victim)
    path.with_name(f".{path.name}.{os.getpid()}").symlink_to(victim)
    Textfile(str(tmp_path), "digits-1").write("a 1\n")
    assert (victim.read_text(), path.read_text(), path.is_symlink()) == ("mine", "a 1\n", False)


def test_each_node_has_metrics_while_its_job_runs(cluster, tmp_path):
    folders = {host: tmp_path / host for host in ("n1", "n2")}
    for folder in folders.values():
        folder.mkdir()
    own = {host: {"metrics_folder": str(folder), "launcher": "direct"} for host, folder in folders.items()}
    job = cluster(["wait"], ["wait"], max_restarts=1, **own).start()

    def told(node):
        (path,) = folders[node.spec["host"]].glob("*.prom")
        return read(path.read_text())

    for node in job.nodes:
        wait_for(lambda node=node: list(folders[node.spec["host"]].glob("*.prom")), "metrics")
    wait_for(lambda: told(job.head).get("trainyard_job_ranks_running") == [({}, 2)], "2 ranks")
    assert told(job.head)["trainyard_job_info"] == [({"head": "n1", "launcher": "direct"}, 1)]
    assert "trainyard_job_info" not in told(job.nodes[1])
    wait_for(lambda: told(job.nodes[1])["trainyard_node_ranks_running"] == [({"node": "n2"}, 1)], "a rank")
    # A killed monitor cannot remove its file: the end of the job on this node does.
    job.nodes[1].signal(signal.SIGKILL)
    job.nodes[1].monitor.wait()
    assert told(job.nodes[1])
    assert read_json(job.nodes[1].dir / "node_plan.json")["metrics_folder"]
    forget_secrets(job.nodes[1].dir)
    assert list(folders["n2"].iterdir()) == []
    job.head.signal(signal.SIGTERM)
    job.head.monitor.wait()
    assert list(folders["n1"].iterdir()) == []
