"""Which host leads a job, by the answers of those that may."""

import pytest
from ansible.module_utils.trainyard.job.run.lead import leader
from ansible.module_utils.trainyard_node.job.run import job_folder
from ansible.module_utils.trainyard_node.machine.json_files import write_json
from hypothesis import given
from hypothesis import strategies as st
from test_events import state

PLAN = {"head": {"host": "n1"}, "candidates": ["n1", "n2", "n3"]}
ALONE = {"head": {"host": "n1"}, "candidates": []}
SILENT = {"unreachable": True, "msg": "timed out"}
WELL = {"state": "succeeded", "finished": 1790000100.0}
FAILED = {"state": "failed", "finished": 1790000100.0, "failure": {"kind": "silent", "host": "n2", "after_s": 15}}
CUT_OFF = {**FAILED, "failure": {"kind": "head_silent", "host": "n1", "after_s": 15, "seen_by": "n3"}}
MINORITY = {**FAILED, "failure": {"kind": "no_majority", "host": "n1", "after_s": 300}}


def node(alive=True, follows="n1", end=None, term=None, **lost):
    """Return the answer of a node that does not lead; its term is by default the lowest of the head that it follows."""
    term = int(follows[-1:] or 1) - 1 if term is None else term
    monitor = {"started": 1790000000.0, "end": end, "follows": follows, "term": term}
    return {"known": True, "monitor_alive": alive, "monitor": monitor, "cluster": None, **lost}


def head(host="n1", term=0, alive=True, end=None, follows=None, **lost):
    """Return the answer of a node that leads or has led."""
    own = {**state(end=end), "head": host, "term": term}
    follows = host if follows is None else follows
    return {**node(alive, follows, end, term if follows == host else None, **lost), "cluster": own}


def test_hosts_that_may_lead():
    assert leader.hosts(PLAN) == ["n1", "n2", "n3"]
    assert leader.hosts(ALONE) == leader.hosts({"head": {"host": "n1"}}) == ["n1"]


@pytest.mark.parametrize(("answers", "found", "phase"), [
    ({"n1": head()}, "n1", "led"),
    # Its first state is written a moment after its monitor has begun.
    ({"n1": node()}, "n1", "led"),
    ({"n1": {**node(), "monitor": None}, "n2": node()}, "n1", "led"),
    ({"n1": head(end=WELL, alive=False)}, "n1", "over"),
    ({"n1": head(end=WELL)}, "n1", "over"),
    # It is down, and nobody has noticed, or an election goes on.
    ({"n1": SILENT, "n2": node(), "n3": node()}, "", "election"),
    ({"n1": head(alive=False), "n2": node(follows="", term=0), "n3": node(follows="", term=0)}, "n1", "election"),
    ({"n1": head(follows=""), "n2": node(follows=""), "n3": node(follows="")}, "", "election"),
    # Another host took over.
    ({"n1": SILENT, "n2": head("n2", 1), "n3": node(follows="n2")}, "n2", "led"),
    ({"n1": SILENT, "n2": head("n2", 1, alive=False, end=WELL), "n3": SILENT}, "n2", "over"),
    # The earlier head is back, or its record is all that it left.
    ({"n1": head(follows="n2"), "n2": head("n2", 1), "n3": node(follows="n2")}, "n2", "led"),
    ({"n1": head(alive=False), "n2": head("n2", 1), "n3": node(follows="n2")}, "n2", "led"),
    ({"n1": head(), "n2": head("n2", 1)}, "n2", "led"),
    ({"n1": head(end=CUT_OFF, alive=False), "n2": head("n2", 1), "n3": node(follows="n2")}, "n2", "led"),
    ({"n1": head(end=FAILED, alive=False), "n2": head("n2", 1, end=WELL)}, "n2", "over"),
    # The second one is lost, too: the third leads, or will.
    ({"n1": SILENT, "n2": head("n2", 1, alive=False), "n3": head("n3", 2)}, "n3", "led"),
    ({"n1": SILENT, "n2": head("n2", 1, alive=False), "n3": node(follows="n2")}, "n2", "election"),
    # The new head gives no answer: the record of the planned one does not count.
    ({"n1": head(alive=False), "n2": SILENT, "n3": node(follows="n2")}, "", "election"),
    ({"n1": head(follows="n2"), "n2": SILENT, "n3": SILENT}, "", "election"),
    ({"n1": head(alive=False), "n2": SILENT, "n3": node(follows="", term=1)}, "", "election"),
    ({"n1": head(end=WELL, alive=False), "n2": SILENT, "n3": node(follows="n2")}, "n1", "over"),
    # A head that was cut off ended its own part alone.
    ({"n1": head(end=CUT_OFF, alive=False), "n2": node(), "n3": SILENT}, "n1", "election"),
    ({"n1": head(end=CUT_OFF, alive=False), "n2": SILENT, "n3": SILENT}, "n1", "silent"),
    ({"n1": head(end=MINORITY, alive=False), "n2": head("n2", 1), "n3": node(follows="n2")}, "n2", "led"),
    # All monitors have ended, or enough that no other can lead.
    ({"n1": SILENT, "n2": node(alive=False), "n3": node(alive=False)}, "", "over"),
    ({"n1": SILENT, "n2": SILENT, "n3": node(alive=False)}, "", "silent"),
    ({"n1": SILENT, "n2": SILENT, "n3": node(alive=False, end=CUT_OFF)}, "", "silent"),
    ({"n1": SILENT, "n2": SILENT, "n3": node(alive=False, end=WELL)}, "", "over"),
    # The head told one node the end; the other one still ends its part, or is suspended.
    ({"n1": SILENT, "n2": node(alive=False, end=WELL), "n3": node()}, "", "over"),
    ({"n1": SILENT, "n2": SILENT, "n3": SILENT}, "", "silent"),
    # A host does not speak for another one, and one that may not lead speaks for none.
    ({"n1": SILENT, "n2": {**head("n3", 9), "monitor": None}, "n3": node()}, "", "election"),
    ({"n1": head(), "n4": head("n4", 9)}, "n1", "led"),
])  # fmt: skip
def test_who_leads(answers, found, phase):
    assert (leader.find(PLAN, answers).host, leader.phase(PLAN, answers)) == (found, phase)
    assert leader.find(PLAN, dict(reversed(answers.items()))).host == found


@pytest.mark.parametrize(("answer", "found", "phase"), [
    (head(), "n1", "led"), (head(alive=False), "n1", "over"), (head(end=FAILED), "n1", "over"),
    # Nobody else can go on.
    (head(end=CUT_OFF, alive=False), "n1", "over"), (node(alive=False), "", "over"), (SILENT, "", "silent"),
])  # fmt: skip
def test_a_head_that_cannot_be_replaced(answer, found, phase):
    answers = {"n1": answer, "n2": head("n2", 3)}
    assert (leader.find(ALONE, answers).host, leader.phase(ALONE, answers)) == (found, phase)


PAIR = {"head": {"host": "n1"}, "candidates": [], "nodes": [{"host": "n1"}, {"host": "n2"}, {"host": "n3"}]}
FIVE = {**PLAN, "nodes": [{"host": host} for host in ("n1", "n2", "n3", "n4")], "spares": [{"host": "n5"}]}
FOUR = {**FIVE, "candidates": ["n1", "n2", "n3", "n4"], "spares": []}
GONE = {"n1": SILENT, "n2": SILENT, "n3": node(alive=False, end=CUT_OFF)}
STOPPED = {"state": "stopped", "finished": 1790000100.0}
ENDED = {"n2": node(alive=False, end=CUT_OFF)}


@pytest.mark.parametrize(("plan", "answers", "phase"), [
    # Nobody can be asked, or nobody that answers knows.
    (PAIR, {"n1": SILENT, "n2": SILENT}, "silent"), (PAIR, {"n1": SILENT, "n2": node(alive=False)}, "silent"),
    # Another node takes part in it, or does after one has given its own part up.
    (PAIR, {"n1": SILENT, "n2": node()}, "election"), (PAIR, {"n1": SILENT, **ENDED, "n3": node()}, "election"),
    # No node goes on without a head that cannot be replaced, unless the job may have fewer nodes.
    (PAIR, {"n1": SILENT, **ENDED}, "over"), ({**PAIR, "min_nodes": 1}, {"n1": SILENT, **ENDED}, "silent"),
    ({**PAIR, "min_nodes": 1}, {"n1": SILENT, "n2": node(alive=False, end=STOPPED)}, "over"),
    # The head speaks for itself.
    (PAIR, {"n1": head(alive=False), "n2": node()}, "over"),
    # Most of those that may lead cannot be asked.
    (FIVE, GONE, "silent"), (FIVE, {**GONE, "n4": node()}, "election"), (FIVE, {**GONE, "n5": node()}, "election"),
    (FIVE, {**GONE, "n4": node(alive=False, end=CUT_OFF)}, "silent"),
    (FIVE, {**GONE, "n4": node(alive=False, end=WELL)}, "over"),
    # Two of four that vote have ended their part, so the others are no majority, unless a witness votes with them.
    (FOUR, {"n3": node(alive=False, end=CUT_OFF), "n4": node(alive=False, end=MINORITY)}, "over"),
    (FOUR, {"n3": node(alive=False, end=CUT_OFF), "n4": node(alive=False)}, "silent"),
    ({**FOUR, "witness": {"host": "w"}}, {**dict.fromkeys(("n3", "n4"), node(alive=False, end=CUT_OFF))}, "silent"),
    # A witness runs nothing of the job.
    (FIVE, {**GONE, "w": node()}, "silent"), (PAIR, {"n1": SILENT, "w": node(alive=False, end=WELL)}, "silent"),
])  # fmt: skip
def test_other_nodes_answer_for_a_job_whose_heads_cannot_be_asked(plan, answers, phase):
    assert leader.phase(plan, answers) == phase


@given(st.permutations(range(4)), st.sets(st.sampled_from(["n1", "n2", "n3"])))
def test_the_highest_term_that_answers_leads(terms, silent):
    answers = {f"n{number}": head(f"n{number}", terms[number], follows=f"n{number}") for number in (1, 2, 3)}
    there = {host: answer for host, answer in answers.items() if host not in silent}
    best = max(there, key=lambda host: terms[int(host[1])], default="")
    assert leader.find(PLAN, {**answers, **dict.fromkeys(silent, SILENT)}).host == best


def test_an_answer_is_enough_by_itself():
    assert leader.leads(PLAN, "n1", head()) and leader.leads(PLAN, "n1", head(end=WELL, alive=False))
    deposed = [head(follows="n2"), head(follows=""), node(follows="n2"), node(follows="")]
    for answer in (SILENT, head(alive=False), *deposed, head(end=CUT_OFF, alive=False)):
        assert not leader.leads(PLAN, "n1", answer)
    assert not leader.leads(PLAN, "n2", node(follows="n2"))


def test_why_nobody_leads():
    def text(**answers):
        return leader.election_text(PLAN, "n1", answers)

    unknown = "n1 gives no answer; if it is lost, the other nodes choose a new head"
    lost = "n1 is lost; the other nodes choose a new head"
    assert text(n1=SILENT, n2=node(), n3=node()) == text(n2=node(), n3=SILENT) == unknown
    assert text(n1=head(alive=False), n2=node()) == text(n1=SILENT, n2=node(follows="")) == lost
    assert text(n1=head(follows=""), n2=node(follows="")) == "n1 no longer leads the job; the nodes choose a new head"
    assert text(n1=SILENT, n2=node(follows="n2")) == lost
    others = {"n1": SILENT, "n2": SILENT, "n3": node(alive=False), "n4": node()}
    assert leader.election_text(FIVE, "n1", others) == "n1 gives no answer; n4 still takes part in the job"
    there = "n2 leads the job now, and gives no answer; the job goes on"
    assert text(n1=SILENT, n2=SILENT, n3=node(follows="n2")) == text(n1=head(follows="n2"), n2=SILENT) == there


def test_a_head_of_before_has_no_line_for_people():
    assert leader.has_led(head(follows="n2")) and leader.has_led(head(follows=""))
    assert not leader.has_led(head()) and not leader.has_led(node())
    before = head()
    del before["monitor"]["follows"]
    assert not leader.has_led(before)
    del before["cluster"]["head"]
    assert not leader.has_led(before)
    assert leader.leads(PLAN, "n1", before) and leader.leads(PLAN, "n1", {**before, "monitor": None})


@pytest.mark.parametrize(("end", "known"), [(None, False), (WELL, True), (FAILED, True), (CUT_OFF, False)])
def test_a_node_says_that_it_recorded_the_end_of_its_job(tmp_path, end, known):
    assert job_folder.has_end(tmp_path) is False
    write_json(tmp_path / "cluster.json", state(end=end))
    assert job_folder.has_end(tmp_path) is known
    write_json(tmp_path / "cluster.json", {"end": WELL})
    assert job_folder.has_end(tmp_path) is False
