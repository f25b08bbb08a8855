"""The page of a verification: nothing of a machine becomes an element of it, figures, sizes, words."""

from __future__ import annotations

import base64
import re
import sys
import zlib
from html.parser import HTMLParser
from pathlib import Path

import plotly.graph_objects as go
import pytest
from ansible.module_utils.trainyard.report import figures as verify_figures
from ansible.module_utils.trainyard.report.text import shown, size, utc
from ansible.module_utils.trainyard_controller.pages import verify_page
from ansible.module_utils.trainyard_controller.plotly_js import plotly_js
from hypothesis import given
from hypothesis import strategies as st

PROJECT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(PROJECT / "tests" / "fixtures" / "reports"))
from composed import HOSTILE, STARTED, check  # noqa: E402
from report_samples import finished, phase, reported  # noqa: E402


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
def test_no_text_of_a_machine_becomes_an_element(said):
    kernel = check("drift", said, "fail", [said], found=said, expected=said, reason=said, action=said, command=said)
    report = reported([phase("drift", kernel)], hosts=[said], cluster=said, inventory=said)
    plain = reported([phase("drift", check("drift", "x", "fail", ["x"], found="x", expected="x", reason="x",
                                           action="x", command="x"))], hosts=["x"])  # fmt: skip
    names = [name for name, _ in Elements(verify_page(report, b"")).found]
    wanted = [name for name, _ in Elements(verify_page(plain, b"")).found]
    # A text that is empty leaves out its line, and that of the first step its element.
    assert set(names) <= set(wanted) and len(names) <= len(wanted)


def test_a_page_loads_nothing_and_runs_only_its_own_scripts():
    content = verify_page(finished(5, hostile=True), plotly_js())
    elements = Elements(content)
    assert not [attrs for _, attrs in elements.found if str(attrs.get("src", "")) or "onclick" in attrs]
    assert {attrs["href"][0] for _, attrs in elements.found if "href" in attrs} == {"#", "d"}
    policy = next(attrs["content"] for _, attrs in elements.found if attrs.get("http-equiv"))
    assert policy.startswith("default-src 'none'; script-src 'sha256-") and policy.count("sha256-") == 2
    assert zlib.decompress(base64.b64decode(elements.scripts["library"])) == plotly_js()
    assert HOSTILE not in content and content.count("<script") == 3


def test_a_page_without_figures_does_not_hold_the_library():
    content = verify_page(reported([phase("drift", ("kernel", "pass"))]), plotly_js())
    assert len(content) < 30_000 and "No pair was measured." in content and "No benchmark was run." in content


def test_a_page_without_the_library_has_its_tables():
    content = verify_page(finished(5), b"")
    assert 'id="figures"' not in content and 'data-figures="missing"' in content and len(content) < 100_000
    assert "n3 slow with every partner" in content


@pytest.mark.parametrize(("nodes", "limit"), [(64, 2.5e6), (1024, 4e6)])
def test_pages_of_large_clusters_stay_small(nodes, limit):
    assert len(verify_page(finished(nodes), plotly_js()).encode()) < limit


def test_the_full_matrix_of_a_thousand_nodes_is_not_drawn_whole():
    hosts = [f"n{number}" for number in range(400)]
    pairs = [
        {"hosts": [a, b], "round": 0, "busbw": 1.0 if a == "n7" else 5.0, "wrong": 0, "error": "", "state": "pass"}
        for at, a in enumerate(hosts)
        for b in hosts[at + 1 :]
    ]
    figure, left_out = verify_figures.pairs_figure(hosts, {"pairs": pairs, "median": 5.0, "gate": 4.0})
    assert left_out == "Of 79800 pairs the 10000 slowest are drawn; report.json has all of them."
    drawn = [held for held in figure["data"][0]["customdata"] if held]
    assert len(drawn) == 20_000 and sum(7 in held[:2] for held in drawn) >= 392 * 2


@pytest.mark.parametrize("nodes", [4, 64, 100])
def test_figures_are_what_plotly_understands(nodes):
    report = finished(nodes)
    figures = [verify_figures.pairs_figure(report["hosts"], report["stragglers"])[0]]
    figures += verify_figures.bandwidth_figures(report["benchmarks"])
    assert len(figures) == 4
    for figure in figures:
        # Raises for a property that there is not, or a value that is none.
        go.Figure(data=figure["data"], layout=figure["layout"])


def test_a_cell_is_the_last_measurement_of_a_pair_with_what_was_before():
    pair = {"hosts": ["n1", "n2"], "wrong": 0, "error": "", "state": "pass"}
    pairs = [{**pair, "round": 0, "busbw": 2.0, "state": "fail"}, {**pair, "round": 2, "busbw": 5.0}]
    pairs.append({**pair, "hosts": ["n3", "n1"], "round": 1, "busbw": None, "state": "unknown", "error": "never came"})
    figure, _ = verify_figures.pairs_figure(["n1", "n2", "n3"], {"pairs": pairs, "median": None, "gate": None})
    trace, crosses = figure["data"]
    cells = {tuple(held[:2]): (value, *held[2:4]) for held, value in zip(trace["customdata"], trace["z"]) if held}
    assert cells == {
        (0, 1): (5.0, "pass", "round 3, before 2 GB/s"),
        (1, 0): (5.0, "pass", "round 3, before 2 GB/s"),
        (0, 2): (None, "unknown", "round 2, never came"),
        (2, 0): (None, "unknown", "round 2, never came"),
    }
    assert list(zip(crosses["y"], crosses["x"])) == [("n1", "n3"), ("n3", "n1")]


@pytest.mark.parametrize(
    ("hosts", "names"),
    [
        (["n1.site.example", "n2.site.example"], ["n1", "n2"]),
        (["n1.a", "n1.b"], ["n1.a", "n1.b"]),
        (["10.0.0.1", "10.0.0.2"], ["10.0.0.1", "10.0.0.2"]),
        (["10.0.0.1", "11.0.0.2"], ["10.0.0.1", "11.0.0.2"]),
        (["a" * 30], ["a" * 11 + ".." + "a" * 11]),
        (
            ["a" * 30 + "1" + "a" * 11, "a" * 30 + "2" + "a" * 11],
            ["a" * 30 + "1" + "a" * 11, "a" * 30 + "2" + "a" * 11],
        ),
    ],
)
def test_names_on_axes_are_short_and_differ(hosts, names):
    assert verify_figures.short_names(hosts) == names


def test_versions_that_differ_stand_with_their_nodes():
    content = verify_page(finished(64), b"")
    rows = re.findall(
        r'<th scope="row">(kernel|os|time offset)</th><td[^>]*>([^<]*)</td><td[^>]*>([^<]*)</td>', content
    )
    assert rows == [
        ("kernel", "6.1.0-30-amd64", "63 nodes"),
        ("os", "Debian GNU/Linux 12 (bookworm)", "all nodes"),
        ("time offset", "not known", "all nodes"),
    ]
    assert '>6.1.0-28-amd64</td><td data-label="nodes">n2</td>' in content


def test_words_of_a_page():
    assert [size(number) for number in (8, 1024, 1536, 2**20, 2**30, 2**41)] == [
        "8 B",
        "1 KiB",
        "1.5 KiB",
        "1 MiB",
        "1 GiB",
        "2048 GiB",
    ]
    assert utc(STARTED) == "2026-11-21 20:00:00 UTC" and utc(None) == ""
    assert shown("timed_out") == {"state": "timed_out", "like": "fail", "sign": "\N{BALLOT X}", "word": "timed out"}
