"""The text and the page of a drill."""

import html

from ansible.module_utils.trainyard.job.drill import drill_result
from ansible.module_utils.trainyard.report import drill_page
from ansible.module_utils.trainyard_controller.runs import pages
from drill_samples import PLAN, checkpoint, drill, losses, runs

JOB = {**PLAN, "job_name": "mine", "world_size": 2, "launcher": "torchrun", "nodes": [{"host": "n1"}, {"host": "n2"}]}


def made(of_runs):
    return drill_result.of_runs(drill(), JOB, of_runs)


def test_the_text_of_a_healthy_job_is_short():
    lines = drill_page.text(made(runs()), "runs/mine-1/drill.html").splitlines()
    assert lines[0] == "survives: yes, a killed node costs 38 s and 12 steps"
    assert lines[2:7] == [
        "  reacts to the signal       pass",
        "  saves                      pass",
        "  resumes at the right step  pass",
        "  loss continues             pass",
        "  data order continues       pass",
    ]
    assert "  stopped and launched again: 0 steps lost" in lines
    assert lines[-1] == "page  runs/mine-1/drill.html"


def test_text_and_page_of_a_no_say_why_what_was_lost_and_what_to_do():
    lost = runs({"checkpoints": {"newest": checkpoint(11, -0.4), "unfinished": None}}, losses(12, 20))
    lines = drill_page.text(made(lost), "").splitlines()
    assert [line.split()[0] for line in lines[2:5]] == ["why", "lost", "do"] and lines[1] == lines[5] == ""
    page = pages.drill_page(made(lost), JOB, lost)
    panel = page[page.index('id="answer"') : page.index('id="checks"')]
    assert all(line.split(maxsplit=1)[1] in html.unescape(panel) for line in lines[2:5])
    assert 'id="answer"' not in pages.drill_page(made(runs()), JOB, runs())
    again = drill_page.text(made(lost), "runs/mine-1/drill.html", "ansible-playbook playbooks/drill.yml").splitlines()
    assert again[-2:] == ["next  do what stands above, then drill again", "      ansible-playbook playbooks/drill.yml"]
    hidden = drill_page.text(made(lost), "runs/mine-1/drill.html", "ansible-playbook playbooks/drill.yml -e x=(hidden)")
    assert hidden.splitlines()[-1] == "next  do what stands above, then drill again"


def test_an_equal_reason_of_several_faults_is_one_line():
    lost = runs(resumed=losses(1, 20), again=losses(1, 20))
    said = [line for line in drill_page.text(made(lost), "").splitlines() if "not comparable" in line]
    assert said == [
        "    stopped and launched again / a rank killed / a node's processes killed: "
        "not comparable: it did not begin at the right step"
    ]


def test_the_page_has_each_check_after_each_fault_and_the_losses_of_all_runs():
    content = drill_page.drill_content(made(runs()), JOB, runs())
    assert content["head"] == ["check", "stopped and launched again", "a rank killed", "a node's processes killed"]
    assert [len(check["cells"]) for check in content["checks"]] == [3] * 5
    # A killed rank is no signal.
    assert [cell["state"] is None for cell in content["checks"][0]["cells"]] == [False, True, True]
    assert [line.name for line in content["curve"]["linear"].lines] == list(drill_page.TITLES.values())
    assert content["runs"][0]["href"] == "../mine-undisturbed/report.html"
    assert content["about"][1] == "losses of undisturbed runs are equal"


def test_a_drill_without_losses_has_no_curve():
    silent = runs()
    for each in silent:
        each["points"] = [{"step": point["step"]} for point in each["points"]]
    content = drill_page.drill_content(made(silent), JOB, silent)
    assert content["curve"] is None and content["about"][1] == "no losses to compare"


def test_names_of_a_program_are_no_html():
    torn = runs()
    torn[1]["summary"]["checkpoints"]["unfinished"] = {"name": "<b>x</b>.pt", "step": 12, "reason": "it is empty"}
    page = pages.drill_page(made(torn), JOB, torn)
    assert "&lt;b&gt;x&lt;/b&gt;.pt is not complete" in page and "<b>x" not in page
    assert page.count("<h2") == 5 and "survives: no, missing: saves" in page
