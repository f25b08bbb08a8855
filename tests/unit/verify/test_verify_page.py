"""The page of a verification: nothing of a machine becomes an element of it, figures, sizes, words."""

from __future__ import annotations

import base64
import re
import zlib
from html.parser import HTMLParser

import plotly.graph_objects as go
import pytest
from ansible.module_utils.trainyard.report import figures as verify_figures
from ansible.module_utils.trainyard.report.text import shown, utc
from ansible.module_utils.trainyard_controller.pages import plotly_js, verify_page
from hypothesis import given
from hypothesis import strategies as st
from report_samples import HOSTILE, STARTED, check, finished, phase, reported


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
        page = verify_page(reported([drift], hosts=[value], cluster=value, inventory=value), b"")
        return [name for name, _ in Elements(page).found]

    found, plain = names(text), names("x")
    # A text that is empty leaves out its line, and that of the first step its element.
    assert set(found) <= set(plain) and len(found) <= len(plain)


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


def test_a_large_matrix_shows_only_its_slowest_pairs():
    hosts = [f"n{number}" for number in range(400)]
    pairs = [
        {"hosts": [a, b], "round": 0, "busbw": 1.0 if a == "n7" else 5.0, "wrong": 0, "error": "", "state": "pass"}
        for at, a in enumerate(hosts)
        for b in hosts[at + 1 :]
    ]
    figure, left_out = verify_figures.pairs_figure(hosts, {"pairs": pairs, "median": 5.0, "gate": 4.0})
    assert left_out == "Of 79800 pairs the 10000 slowest are drawn; report.json has all of them."
    drawn = [cell for cell in figure["data"][0]["customdata"] if cell]
    assert len(drawn) == 20_000 and sum(7 in cell[:2] for cell in drawn) >= 392 * 2


@pytest.mark.parametrize("nodes", [4, 64, 100])
def test_figures_are_what_plotly_understands(nodes):
    report = finished(nodes)
    figures = [verify_figures.pairs_figure(report["hosts"], report["stragglers"])[0]]
    figures += verify_figures.bandwidth_figures(report["benchmarks"])
    assert len(figures) == 4
    for figure in figures:
        # Raises for a property that there is not, or a value that is none.
        go.Figure(data=figure["data"], layout=figure["layout"])


def test_a_cell_is_the_last_measurement_of_a_pair_with_the_one_before():
    pair = {"hosts": ["n1", "n2"], "wrong": 0, "error": "", "state": "pass"}
    pairs = [{**pair, "round": 0, "busbw": 2.0, "state": "fail"}, {**pair, "round": 2, "busbw": 5.0}]
    pairs.append({**pair, "hosts": ["n3", "n1"], "round": 1, "busbw": None, "state": "unknown", "error": "never came"})
    figure, _ = verify_figures.pairs_figure(["n1", "n2", "n3"], {"pairs": pairs, "median": None, "gate": None})
    trace, crosses = figure["data"]
    cells = {tuple(cell[:2]): (value, *cell[2:4]) for cell, value in zip(trace["customdata"], trace["z"]) if cell}
    both, error = (5.0, "pass", "round 3, before 2 GB/s"), (None, "unknown", "round 2, never came")
    assert cells == {(0, 1): both, (1, 0): both, (0, 2): error, (2, 0): error}
    assert list(zip(crosses["y"], crosses["x"])) == [("n1", "n3"), ("n3", "n1")]


LONG = [f"{'a' * 30}{number}{'a' * 11}" for number in (1, 2)]


@pytest.mark.parametrize(
    ("hosts", "names"),
    [
        (["n1.site.example", "n2.site.example"], ["n1", "n2"]),
        (["n1.a", "n1.b"], ["n1.a", "n1.b"]),
        (["10.0.0.1", "10.0.0.2"], ["10.0.0.1", "10.0.0.2"]),
        (["10.0.0.1", "11.0.0.2"], ["10.0.0.1", "11.0.0.2"]),
        (["a" * 30], ["a" * 11 + ".." + "a" * 11]),
        (LONG, LONG),
    ],
)
def test_names_on_axes_are_short_and_differ(hosts, names):
    assert verify_figures.short_names(hosts) == names


def test_versions_that_differ_are_shown_with_their_nodes():
    content = verify_page(finished(64), b"")
    cell = "<td[^>]*>([^<]*)</td>"
    rows = re.findall(f'<th scope="row">(kernel|os|time offset)</th>{cell}{cell}', content)
    assert rows == [
        ("kernel", "6.1.0-30-amd64", "63 nodes"),
        ("os", "Debian GNU/Linux 12 (bookworm)", "all nodes"),
        ("time offset", "not known", "all nodes"),
    ]
    assert '>6.1.0-28-amd64</td><td data-label="nodes">n2</td>' in content


def test_texts_of_a_page():
    assert utc(STARTED) == "2026-11-21 20:00:00 UTC" and utc(None) == ""
    assert shown("timed_out") == {"state": "timed_out", "like": "fail", "sign": "\N{BALLOT X}", "word": "timed out"}
