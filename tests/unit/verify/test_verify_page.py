"""The page of a verification: nothing of a machine becomes an element of it, figures, sizes, words."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from ansible.module_utils.trainyard.report import verify_page as of_cluster
from ansible.module_utils.trainyard.report.bandwidth_plots import MAX_LINES, bandwidth_plots
from ansible.module_utils.trainyard_controller.runs.pages import verify_page
from hypothesis import given
from hypothesis import strategies as st
from report_samples import HOSTILE, check, finished, phase, reported


class Elements(HTMLParser):
    """All elements of a page with their attributes, and the text of its scripts."""

    def __init__(self, content):
        super().__init__()
        self.found, self.scripts, self._script = [], {}, None
        self.feed(content)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        self._script = dict(attrs).get("id", "program") if tag == "script" else None

    def handle_data(self, data):
        if self._script:
            self.scripts[self._script] = self.scripts.get(self._script, "") + data

    def handle_endtag(self, tag):
        self._script = None


@given(st.text())
def test_no_text_of_a_machine_becomes_an_element(text):
    def names(value):
        fields = dict.fromkeys(("found", "expected", "reason", "action", "command"), value)
        drift = phase("drift", check("drift", value, "fail", [value], **fields))
        page = verify_page(reported([drift], hosts=[value], cluster=value, inventory=value))
        return [name for name, _ in Elements(page).found]

    found, plain = names(text), names("x")
    # A text that is empty leaves out its line, and that of the first step its element.
    assert set(found) <= set(plain) and len(found) <= len(plain)


def test_a_page_loads_nothing_and_runs_only_its_own_scripts():
    content = verify_page(finished(5, hostile=True))
    elements = Elements(content)
    assert not [attrs for _, attrs in elements.found if str(attrs.get("src", "")) or "onclick" in attrs]
    assert {attrs["href"][0] for _, attrs in elements.found if "href" in attrs} == {"#", "d"}
    policy = next(attrs["content"] for _, attrs in elements.found if attrs.get("http-equiv"))
    assert policy.startswith("default-src 'none'; script-src 'sha256-") and policy.count("sha256-") == 1
    assert HOSTILE not in content and content.count("<script") == 1


@pytest.mark.parametrize(("nodes", "limit"), [(5, 1e5), (64, 2.5e5), (1024, 1.5e6)])
def test_pages_of_large_clusters_stay_small(nodes, limit):
    assert len(verify_page(finished(nodes)).encode()) < limit


def test_steps_have_the_numbers_of_the_terminal():
    report = finished(5)
    made = of_cluster.verify_content(report)["to_do"]
    numbered = re.findall(r"^  (\d+)\. (\w+): (.+?)(?: on \S+)?: (fail|unknown)$", report["text"], re.MULTILINE)
    assert [(check["state"]["state"], number + 1) for number, check in enumerate(made)] == [
        (state, int(number)) for number, _, _, state in numbered
    ]
    assert all(check["title"].startswith(name) for check, (_, _, name, _) in zip(made, numbered))


@pytest.mark.parametrize("nodes", [2, 5, 128, 1024])
def test_a_cell_for_each_node_has_its_share_of_the_healthy_bandwidth(nodes):
    hosts = [f"n{number}" for number in range(nodes)]
    scores = [
        {"host": host, "state": "pass", "score": 0.98, "confidence": 0.9, "measurements": 2, "reason": "", "action": ""}
        for host in hosts
    ]
    scores[1].update(state="fail", score=0.4)
    stragglers = {"state": "fail", "reason": "n1 slow", "median": 45.0, "gate": 36.0, "pairs": [], "nodes": scores}
    made = of_cluster.verify_content(
        reported([phase("stragglers", ("pairs", "pass"))], hosts=hosts, stragglers=stragglers)
    )
    (group,) = made["cells"]
    # The pair of two nodes has no other to compare it with.
    assert [cell["part"] for cell in group["cells"]][:3] == ([None, None] if nodes == 2 else [0.98, 0.4, 0.98])
    assert len(group["cells"]) == nodes and group["name"] == "" and made["shares"] == (nodes > 2)


def test_cells_are_grouped_by_a_host_variable_and_others_come_last():
    racks = {"n1": "b", "n2": None, "n3": "a", "n4": "b", "n5": 7}
    hosts = [f"n{number}" for number in range(1, 7)]
    report = reported([phase("drift", ("kernel", "pass"))], hosts, group_by="rack", groups=racks)
    groups = of_cluster.verify_content(report)["cells"]
    assert [(group["name"], [cell["host"] for cell in group["cells"]]) for group in groups] == [
        ("rack b", ["n1", "n4"]), ("rack a", ["n3"]), ("rack 7", ["n5"]), ("without rack", ["n2", "n6"]),
    ]  # fmt: skip
    # Numbers of cells lead to rows in inventory order.
    assert [cell["number"] for group in groups for cell in group["cells"]] == [0, 3, 2, 4, 1, 5]
    content = verify_page(report)
    assert "<h3>rack b</h3>" in content and 'aria-label="Nodes without rack in inventory order' in content


@pytest.mark.parametrize("nodes", [3, 5, 128, 1024])
def test_each_node_has_a_cell_for_each_phase_that_was_checked(nodes):
    hosts = [f"n{number}" for number in range(nodes)]
    last, figures = hosts[-1], {"figures": {"memory of device 0": dict.fromkeys(hosts[:-1], 1.0)}, "fall": 0.1}
    report = reported(
        [
            phase("drift", ("kernel", "pass")),
            phase("reach", ("answer", "fail", [last]), ("job network", "fail", hosts[:2]), ("ssh", "fail", hosts)),
            phase("compute", check("compute", "speed", data=figures)),
            phase("storage", ("speed", "pass")),
            phase("collectives", ("all-gather", "pass")),
            phase("bandwidth", ("all_gather", "unknown", [])),
            phase("counters", ("ECC", "fail", hosts[:1]), ("ECC", "unknown", hosts[:1])),
        ],
        hosts,
    )
    made = of_cluster.verify_content(report)
    found = {node["host"]: [each["state"] for each in node["phases"]] for node in made["nodes"]}
    assert made["columns"] == ["drift", "reach", "compute", "storage", "collectives", "bandwidth", "counters"]
    # What does not answer was never measured; jobs leave out what the job network fails, unless it has figures.
    assert found[last] == ["skipped", "fail", *["skipped"] * 5]
    assert found["n0"] == ["pass", "fail", "pass", "pass", "skipped", "skipped", "fail"]
    # Logins are no part of a measurement; which node bandwidth could not check is not known.
    assert nodes < 5 or found["n2"] == ["pass", "fail", "pass", "pass", "pass", "unknown", "pass"]
    page = verify_page(report)
    assert page.count('data-label="counters"') == nodes and '<span class="turned">compute</span>' in page


def test_a_node_has_its_slowest_pairs_on_demand():
    pair = {"wrong": 0, "error": "", "state": "pass", "round": 0}
    pairs = [{**pair, "hosts": ["n0", f"n{other}"], "busbw": float(other)} for other in range(1, 40)]
    pairs.append({**pair, "hosts": ["n5", "n0"], "busbw": None, "state": "unknown", "error": "never came"})
    found = of_cluster._pairs_of_nodes({"pairs": pairs})
    assert [(row["partner"], row["text"], row["note"]) for row in found["n0"]][:3] == [
        ("n5", "", "never came"), ("n1", "1", ""), ("n2", "2", ""),
    ]  # fmt: skip
    assert len(found["n0"]) == of_cluster.MAX_PAIRS and [row["partner"] for row in found["n5"]] == ["n0", "n0"]


@pytest.mark.parametrize("nodes", [4, 64, 100])
def test_plots_have_measured_and_expected_lines(nodes):
    plots = bandwidth_plots(finished(nodes)["benchmarks"])
    assert [each.title for each in plots] == [
        "all_reduce over nccl, over nodes", "all_gather over nccl, over nodes", "all_reduce over nccl, inside a node",
    ]  # fmt: skip
    assert [line.kind for line in plots[0].plot.lines] == ["main", "other", "expected", "expected least"]
    inside = plots[2]
    assert len([line for line in inside.plot.lines if "expected" not in line.kind]) == min(nodes, MAX_LINES)
    assert bool(inside.note) == (nodes > MAX_LINES) and inside.plot.lines[0].kind in ("failed", "other")


def test_latency_and_versions_that_differ_are_shown():
    content = verify_page(finished(64))
    assert "34.5 µs up to 4 KiB" in content
    cell = "<td[^>]*>([^<]*)</td>"
    rows = re.findall(f'<th scope="row">(kernel|os|time offset)</th>{cell}{cell}', content)
    assert rows == [
        ("kernel", "6.1.0-30-amd64", "63 nodes"),
        ("os", "Debian GNU/Linux 12 (bookworm)", "all nodes"),
        ("time offset", "not known", "all nodes"),
    ]
    assert '>6.1.0-28-amd64</td><td data-label="nodes">n2</td>' in content
