"""The pages of reports in a browser: nothing complains, all can be reached by keyboard, nothing of a machine runs."""

from __future__ import annotations

import functools

import drill_samples
import pytest
from ansible.module_utils.trainyard.job.drill import drill_result as result
from ansible.module_utils.trainyard.report import run_list
from ansible.module_utils.trainyard.report.job_page import OutputFile
from ansible.module_utils.trainyard.report.job_text import Story, tell
from ansible.module_utils.trainyard.verify.report import build, terminal_text
from ansible.module_utils.trainyard_controller.runs.pages import drill_page, job_page, page, verify_page
from composed import HOSTILE, composed
from composed_job import STARTED, hung, series, summary
from selenium.webdriver.common.keys import Keys

# Relative luminance as in WCAG 2.2, 1.4.3.
CONTRAST = """
  const channels = (text) => text.match(/[\\d.]+/g).slice(0, 3).map((part) => {
    const value = part / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  const light = (text) => channels(text).reduce((sum, value, at) => sum + value * [0.2126, 0.7152, 0.0722][at], 0);
  const back = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const found = getComputedStyle(at).backgroundColor;
      if (!/, 0\\)$/.test(found)) return found;
    }
  };
  const texts = "h1, h2, h3, p, li, td, th, dt, dd, a, code, pre, label, button, .state, caption, summary";
  return [...document.querySelectorAll(texts)]
    .filter((element) => element.textContent.trim() && element.checkVisibility())
    .map((element) => {
      const [a, b] = [light(getComputedStyle(element).color), light(back(element))];
      return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), element.outerHTML.slice(0, 90)];
    })
    .filter(([ratio]) => ratio < 4.5);
"""


# Whether each figure has lines or the picture of a matrix.
DRAWN = """
  return [...document.querySelectorAll('svg.linear')].map((place) => !!place.querySelector('path[d]'));
"""
FETCHED = """
  const far = (entry) => !/^(data|blob):/.test(entry.name);
  return performance.getEntriesByType('resource').filter(far).map((entry) => entry.name);
"""


@functools.cache
def cluster_page(nodes, **options):
    report = build(**composed(nodes, **options))
    report["text"] = terminal_text(report, "runs/verify-1")
    return verify_page(report)


@functools.cache
def job(nodes=2, points=200):
    hostile = "<img src=x onerror=alert(1)>"
    story = Story("failed.", [hostile], [], [hostile], "rank_1.log", "n1", notes=[hostile])
    return job_page(summary(nodes, 8), series(points), story, {"command": hostile, "job": {"job_name": hostile}})


# A browser shows files with this ending.
ODD = [
    f"{name}.txt" for name in ("results/a b", "a#1?x=%41&", "javascript:alert(1)", "<img src=x onerror=alert(1)>", "ü")
]


def with_outputs():
    files = [OutputFile("n1", name, 10) for name in ODD]
    return job_page(summary(2, failed=False), series(50), Story("succeeded.", [], []), {}, files=files)


def hanging():
    job = hung(2)
    launch = {"command": "ansible-playbook launch.yml -e @jobs/digits.yml", "job": {"job_name": "digits"}}
    return job_page(job, series(200), tell(job, "runs/x", "", [], launch=launch), launch)


def drilled():
    """The page of a drill whose runs have equal losses."""
    plan = {**drill_samples.PLAN, "job_name": "mine", "world_size": 2, "launcher": "direct", "nodes": [{"host": "n1"}]}
    state = {"newest": drill_samples.checkpoint(11, -0.4), "unfinished": None}
    runs = drill_samples.runs({"checkpoints": state}, drill_samples.losses(12, 20))
    return drill_page(result.of_runs(drill_samples.drill(), plan, runs), plan, runs)


PLAN = {
    "job_name": "digits",
    "created": "2026-11-21T20:00:00+0000",
    "world_size": 4,
    "head": {"host": "n1"},
    "nodes": [{"host": "n1", "devices": []}, {"host": "n2", "devices": []}],
}


def listed():
    first, second = ({**PLAN, "job_id": f"digits-{number}"} for number in (1, 2))
    return run_list.job(first, summary(2)), run_list.job(second, summary(2, failed=False))


def runs_page():
    """A list with runs of all kinds."""
    drills = [{**PLAN, "job_id": f"mine-{number}", "asked_by": "drill.yml"} for number in range(5)]
    result = {"state": "fail", "headline": "survives: no, missing: saves", "runs": drills}
    away = {**PLAN, "job_id": "away-1", "launch": {"inventory": "-i inventories/other", "by": "jane@laptop"}}
    pairs = {**PLAN, "job_id": "pairs-1", "job_name": "pairs", "asked_by": "pair_check.yml"}
    runs = [
        *listed(),
        *run_list.drills([run_list.job(plan, summary(2, failed=False)) for plan in drills], {"mine-0": result}),
        run_list.job({**PLAN, "job_id": "digits-3"}, None, "2/2 ranks running   step 40/200 loss 0.31"),
        run_list.job(away, None, elsewhere=True),
        run_list.job(pairs, summary(2, failed=False)),
        run_list.verification(build(**composed(5))),
    ]
    return page("report/runs.html.j2", run_list.content(run_list.selected(runs, STARTED), STARTED))


def compared():
    changed = [("job_command", "python train.py --lr 0.1", "python train.py --lr 0.2")]
    return page("report/compare.html.j2", run_list.comparison(listed(), changed, [series(200), series(150)]))


PAGES = ["report", "job", "runs", "compared"]


def running(**more):
    return {**summary(2, failed=False), "state": "running", "finished": None, **more}


def test_the_page_of_a_job_that_runs_follows_it(browser):
    first = job_page(running(elapsed_s=61.0), series(20), Story("is running.", [], []), {}, 1.0)
    path = browser.open(first)
    assert "As it was 0:01:01 after its start" in browser.run("return document.getElementById('live').textContent")
    # The watcher writes it anew; the browser reloads it until the job has ended.
    path.write_text(job_page(summary(2, failed=False), series(40), Story("succeeded.", [], []), {}, 1.0))
    browser.until("return document.title.startsWith('succeeded')")
    assert browser.run("return document.querySelector('meta[http-equiv=refresh], #live')") is None
    assert browser.complaints() == []


@pytest.mark.parametrize("width", [1200, 360])
@pytest.mark.parametrize(
    ("content", "figures"),
    [(lambda: cluster_page(5, hostile=True), 3), (job, 2), (hanging, 2), (runs_page, 0), (compared, 2), (drilled, 1)],
    ids=["report", "job", "hung", "runs", "compared", "drill"],
)
def test_a_page_is_whole_and_readable(browser, content, figures, width):
    browser.open(content(), width=width)
    # Each figure is drawn, and nothing is wider than the window.
    drawn = browser.run(DRAWN)
    assert len(drawn) == figures and all(drawn)
    assert browser.run("return document.documentElement.scrollWidth") <= width
    for dark, paper in [(False, "rgb(255, 255, 255)"), (True, "rgb(20, 24, 28)")]:
        browser.turn(dark=dark)
        assert browser.run("return getComputedStyle(document.body).backgroundColor") == paper
        assert browser.run(CONTRAST) == []
    # The page is all: nothing was fetched beside it.
    assert browser.run(FETCHED) == []
    assert browser.complaints() == []


LONG = "gpu0123456789012345678901234567890123456789.training.cluster.example"


@pytest.mark.parametrize(
    ("content", "name"),
    [(lambda: cluster_page(5), "n1"), (hanging, "n1"), (runs_page, "digits-1"), (compared, "digits-1")],
    ids=PAGES,
)
def test_long_names_make_no_page_wider_than_its_window(browser, content, name):
    text = content().replace(f">{name}<", f">{LONG}<").replace(f" {name}", f" {LONG}")
    for width in (390, 760, 1000, 1400):
        browser.open(text, width=width)
        browser.run("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        assert LONG in browser.run("return document.body.textContent")
        assert browser.run("return document.documentElement.scrollWidth") <= width


def test_names_and_log_lines_are_text(browser):
    browser.open(cluster_page(5, hostile=True))
    assert HOSTILE in browser.one("#nodes").text
    scripts = browser.run("return [...document.scripts].map((script) => script.type || 'program')")
    assert scripts == ["program"]
    browser.open(job())
    assert all("<img src=x onerror=alert(1)>" in browser.one(place).text for place in ("#tail", "#happened", "#left"))
    assert browser.run("return document.images.length") == 0 and browser.complaints() == []


def test_links_of_outputs_lead_to_the_files_whatever_their_names_are(browser, tmp_path):
    for number, name in enumerate(ODD):
        (tmp_path / "outputs/n1" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "outputs/n1" / name).write_text(f"file {number}")
    for number, name in enumerate(ODD):
        browser.open(with_outputs())
        link = browser.driver.find_elements("css selector", "#outputs tbody a")[number]
        assert link.text == name
        browser.driver.get(link.get_attribute("href"))
        assert browser.run("return document.body.textContent") == f"file {number}"


def test_a_cell_leads_to_its_node_by_keyboard(browser):
    browser.open(cluster_page(5))
    for _ in range(60):
        browser.press(Keys.TAB)
        if browser.run("return document.activeElement.textContent.trim()") == "n3":
            break
    browser.press(Keys.ENTER)
    row = browser.one("tr:target")
    assert row.text.startswith("n3") and browser.complaints() == []
    row.find_element("css selector", "summary").click()
    assert "GB/s" in row.find_element("css selector", "details").text


FOCUS = """
  const place = document.activeElement, style = getComputedStyle(place), box = place.getBoundingClientRect();
  return [place.tagName, style.outlineStyle, parseFloat(style.outlineWidth), box.width > 0 && box.left >= 0,
          [...document.querySelectorAll('*')].indexOf(place)];
"""


def tabbed(browser, most=200):
    """Press Tab until the focus leaves the page; return what FOCUS says of each place."""
    found = []
    for _ in range(most):
        browser.press(Keys.TAB)
        place = browser.run(FOCUS)
        if place[0] == "BODY" or (found and place[4] <= found[-1][4]):
            break
        found.append(place)
    return found


@pytest.mark.parametrize("width", [1400, 390])
@pytest.mark.parametrize("content", [lambda: cluster_page(5), hanging, runs_page, compared], ids=PAGES)
def test_the_focus_is_visible_and_goes_down_the_page(browser, content, width):
    browser.open(content(), width=width)
    places = tabbed(browser)
    controls = "return [...document.querySelectorAll('a[href], button, input, select, summary')]"
    assert len(places) == browser.run(f"{controls}.filter((each) => each.checkVisibility()).length")
    assert [place for place in places if place[1] != "solid" or place[2] < 3 or not place[3]] == []


def test_what_is_folded_opens_with_enter(browser):
    browser.open(hanging())
    assert browser.run("return [...document.querySelectorAll('#stacks details')].map((each) => each.open)") == [
        True,
        False,
    ]
    for place in browser.driver.find_elements("css selector", "details:not([open]) > summary"):
        browser.run("document.activeElement.blur()")
        browser.driver.execute_script("arguments[0].focus()", place)
        browser.press(Keys.ENTER)
        browser.until("return document.activeElement.parentElement.open")
    assert "all_reduce" in browser.one("#stacks").text and "rank3" in browser.one("#folded-table").text
    browser.open(cluster_page(5))
    browser.driver.execute_script("document.querySelector('#node-2 summary').focus()")
    browser.press(Keys.ENTER)
    browser.until("return document.querySelector('#node-2 details').open")
    assert "GB/s" in browser.one("#node-2 details").text


def test_the_cells_of_many_nodes_are_skipped_by_keyboard(browser):
    browser.open(cluster_page(128))
    browser.driver.execute_script("document.querySelector('nav li:last-child a').focus()")
    for _ in range(60):
        browser.press(Keys.TAB)
        if browser.run("return document.activeElement.className") == "skip":
            break
    assert browser.run("return document.activeElement.getBoundingClientRect().left") >= 0
    browser.press(Keys.ENTER)
    browser.press(Keys.TAB)
    assert browser.run("return document.activeElement.id") in ("filter-text", "filter-state")


def test_a_command_is_copied_or_selected_by_keyboard(browser):
    browser.open(hanging())
    browser.driver.execute_script("document.querySelector('.copy-it').focus()")
    browser.press(Keys.ENTER)
    browser.until("return document.querySelector('.copy-it').textContent !== 'copy'")
    assert browser.complaints() == []


def test_a_script_that_slipped_through_would_not_run(browser):
    evil = '<img src="https://example.org/x" onerror="window.hit = 1"><script>window.hit = 2</script>'
    browser.open(cluster_page(5).replace("<main", evil + "<main", 1))
    assert browser.run("return window.hit === undefined")
    complaints = browser.complaints()
    assert complaints and all("Content Security Policy" in line for line in complaints)


def test_runs_of_all_kinds_are_found_by_state(browser):
    browser.open(runs_page())
    titles = [each.text for each in browser.driver.find_elements("css selector", "h2")]
    assert titles == ["Jobs", "Drills", "Verifications", "Jobs of verifications and benchmarks"]
    browser.one("#filter-state").send_keys("other inventory")
    shown = "return [...document.querySelectorAll('#filtered tbody tr')].filter((row) => !row.hidden)"
    browser.until(f"{shown}.length === 1")
    assert browser.run(f"{shown}[0].textContent").startswith("away-1")
    assert browser.one("#drill tbody a").get_attribute("href").endswith("/mine-0/drill.html")


def test_nodes_are_found_by_name_and_state(browser):
    browser.open(cluster_page(5))
    visible = "return [...document.querySelectorAll('#filtered tbody tr')].filter((row) => !row.hidden).length"
    assert browser.run(visible) == 5
    browser.one("#filter-text").send_keys("N3")
    assert browser.run(visible) == 1 and browser.one("#filter-count").text == "1 of 5"
    browser.one("#filter-text").clear()
    browser.one("#filter-state").send_keys("unknown")
    browser.until(f"return (() => {{ {visible} }})() === 1")


@pytest.mark.parametrize("nodes", [1, 2, 5, 128, 1024])
def test_each_node_has_a_small_cell_at_any_width(browser, nodes):
    for options in ({}, {"racks": 16}):
        content = cluster_page(nodes, **options)
        for width in (1400, 390):
            browser.open(content, width=width)
            sizes = browser.run("return [...document.querySelectorAll('.shares li')].map((cell) => cell.offsetWidth)")
            assert len(sizes) == nodes and max(sizes) < 100
            assert browser.run("return document.documentElement.scrollWidth") <= width
            assert browser.complaints() == []


def test_a_job_of_thousands_of_ranks_is_a_small_page_that_unfolds(browser):
    content = job_page(summary(1024, 8), series(200), Story("failed.", [], []), {"command": "ansible-playbook x"})
    assert len(content) < 200_000
    browser.open(content)
    height = browser.run("return document.documentElement.scrollHeight")
    rows = "return document.querySelectorAll('#folded-table tbody tr').length"
    assert height < 4000 and browser.run(rows) == 0
    browser.one("#folded summary").click()
    browser.until(f"return (() => {{ {rows} }})() === 500")
    browser.one("#folded-find").send_keys("n700")
    browser.until(f"return (() => {{ {rows} }})() === 8")
    link = browser.one("#folded-table tbody a")
    assert link.get_attribute("href").endswith("/logs/rank_5592.log") and browser.complaints() == []


@pytest.mark.parametrize("width", [1400, 390])
def test_equal_runs_of_a_drill_are_told_apart_without_colors(browser, width):
    browser.open(drilled(), width=width)
    places = """
      const dash = (path) => getComputedStyle(path).strokeDasharray;
      const top = (path) => Math.round(path.getScreenCTM().f + new DOMMatrix(getComputedStyle(path).transform).f);
      return [[...document.querySelectorAll('svg.linear path')].map((path) => [dash(path), top(path)]),
              [...document.querySelectorAll('svg.sample path')].map(dash)];
    """
    lines, legend = browser.run(places)
    dashes, tops = zip(*lines, strict=True)
    assert len(set(dashes)) == len(set(tops)) == 5 and list(dashes) == legend


def test_without_javascript_all_is_there(browser):
    browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.open(cluster_page(5))
        assert "n3" in browser.one("#filtered").text and "Do this first" in browser.one("#first").text
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
