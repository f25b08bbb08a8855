"""How a job is watched: what is shown of it, and when its watcher gives up."""

import time

import pytest
from ansible.module_utils.trainyard_controller.job import heads, watching
from test_leader import CUT_OFF, FAILED, WELL, head, node

CREATED = 1790000000.0
GONE = {"unreachable": True, "msg": "Failed to connect to the host via ssh: timed out"}


class Clock:
    """Time that passes only where somebody waits."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now

    def time(self):
        return CREATED + self.now - 1000.0

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    for module in (watching, heads):
        monkeypatch.setattr(module, "time", made)
    return made


class Says:
    """A job of which these answers come, one after the other; the last one again and again."""

    host, title, then = "n1", "head node n1", "the watch ends nothing"
    until, patience_s = 1320.0, 20.0

    def __init__(self, *answers):
        self.answers = list(answers)

    def read(self, wait_s):
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def runs(line, *told, state="running"):
    return {"state": state, "line": line, "told": told}


def followed(job):
    shown, forgotten = [], []
    return watching.follow(job, forgotten.append, shown.append), shown, forgotten


def test_progress_is_shown_each_time_and_why_a_job_waits_once(clock):
    waits = runs("waits: Priority", state="pending")
    over = runs("", "restart 1", "restart 2", state="failed")
    job = Says(waits, waits, runs("step 1"), runs("step 2", "restart 1"), over)
    lost, shown, _ = followed(job)
    assert (lost, shown) == ("", ["  waits: Priority", "  step 1", "  restart 1", "  step 2", "  restart 2"])


def test_lines_that_differ_in_their_time_alone_are_repeated_within_ten_seconds(in_time):
    lines = [runs(f"0:00:{second:02}   4/4 ranks running") for second in range(2, 30, 2)]
    _, shown, _ = followed(Says(*lines, runs("", state="over")))
    assert [line.split()[0] for line in shown] == ["0:00:02", "0:00:10", "0:00:18", "0:00:26"]


def test_a_silent_head_is_queried_until_patience_ends(clock):
    lost, shown, forgotten = followed(Says(GONE, GONE, runs("step 1"), GONE, runs("", state="over")))
    assert (lost, shown, forgotten) == ("", ["  step 1"], ["n1"] * 3)
    began = clock.now
    late = Says(runs("step 1"), GONE)
    late.until = began
    lost, shown, _ = followed(late)
    assert (lost, shown) == ("n1: timed out", ["  step 1"]) and 20 < clock.now - began <= 22


def test_a_silent_head_is_named_less_and_less_often(clock):
    job = Says(*[GONE] * 100, runs("step 9"), GONE, runs("", state="over"))
    _, shown, _ = followed(job)
    words = "ranks may still run. It is asked for up to"
    assert shown == [
        f"  head node n1 gave no answer for 22 s; {words} 0:04:58 more; the watch ends nothing",
        f"  head node n1 gave no answer for 66 s; {words} 0:04:14 more; the watch ends nothing",
        "  head node n1 answers again after 100 s",
        "  step 9",
    ]


def test_a_head_that_freezes_during_a_query_is_named(clock):
    job = Says(runs("", state="over"))
    at_once = job.read

    def read(wait_s):
        # As ssh does, whose connection stays open.
        while not shown:
            time.sleep(0.01)
        return at_once(wait_s)

    def interrupted():
        clock.now += 10
        return False

    job.read, job.until, shown = read, 0.0, []
    assert watching.follow(job, lambda _: None, shown.append, interrupted=interrupted) == ""
    assert shown[0].startswith(
        "  head node n1 gave no answer for 30 s; ranks may still run. It is asked for up to 0:00:02 "
    )


@pytest.fixture
def in_time(clock, monkeypatch):
    """Each poll takes as long as requested, and nothing of it runs beside the watcher."""

    def poll(job, wait_s, interrupted, meanwhile):
        clock.now += wait_s
        meanwhile()
        return job.read(wait_s)

    monkeypatch.setattr(watching, "_poll", poll)


def test_a_head_whose_monitor_reports_nothing_new_is_named_until_it_does(clock, in_time):
    """Its sshd answers all the while: the node is not given up for it, and the old line not shown again."""
    at_s = [0.0, 2.0, 4.0]
    answers = [*({**known(True), "cluster": {"end": None, "elapsed_s": each}} for each in (*at_s, *[4.0] * 31, 90.0))]
    answers.append(known(False, {"state": "succeeded"}))

    def ask(question, own, limit_s):
        return {"n1": {**answers.pop(0), "restarts": []}}

    lost, shown, forgotten = followed(watching.OverSsh(plan(), ask))
    assert (lost, forgotten) == ("", [])
    shown = [line for line in shown if "still: l" not in line]
    at = next(number for number, line in enumerate(shown) if line != "  l")
    first, second, again = shown[at : at + 3]
    assert first.startswith("  head node n1 answers, but its monitor reported nothing for 22 s; ranks may still run.")
    assert "reported nothing for 72 s" in second and again == "  head node n1 reports again after 99 s"
    assert set(shown[:at] + shown[at + 3 :]) == {"  l"}


def plan(max_restarts=0, hosts=("n1",)):
    head, created = {"host": "n1"}, time.strftime("%Y-%m-%dT%H:%M:%S+0000", time.gmtime(CREATED))
    limits = {"created": created, "timeout_s": 3600, "rejoin_s": 300, "max_restarts": max_restarts}
    return {"job_id": "a", "job_dir": "/x/a", "head": head, **limits, "nodes": [{"host": host} for host in hosts]}


def known(alive, end=None, restarted=True):
    cluster = {"end": end} if alive or end else None
    lost = {} if alive else {"monitor_lost": {"restarted": restarted, "how": ""}}
    return {"known": True, "monitor_alive": alive, "cluster": cluster, "line": "l", "restarts": ["r"], **lost}


@pytest.mark.parametrize(("restarts", "over_after_s"), [(0, 0), (1, 300)])
def test_a_head_that_comes_back_is_waited_for_while_restarts_are_left(clock, restarts, over_after_s):
    answers = [known(True), known(False)]
    job = watching.OverSsh(plan(restarts), lambda question, own, limit_s: {"n1": answers[0]})
    assert job.read(2)["state"] == "running"
    answers.pop(0)
    began = clock.now
    while job.read(2)["state"] == "running":
        assert clock.now - began <= over_after_s
    assert clock.now - began == pytest.approx(over_after_s, abs=1)
    # One whose monitor was killed does not come back.
    answers[0] = known(True)
    assert job.read(2)["state"] == "running"
    answers[0] = known(False, restarted=False)
    assert job.read(2)["state"] == "over"
    answers[0] = known(True, {"state": "failed"})
    assert job.read(2)["state"] == "over"


def test_a_scheduler_without_the_job_is_queried_once(clock, tmp_path, monkeypatch):
    answers = [{"state": "pending", "line": ""}, GONE, {"failed": True, "msg": "no such job"}]

    class Job:
        def state(self, *, waits):
            assert waits
            return answers.pop(0)

    monkeypatch.setattr(watching, "external_job", lambda *_: Job())
    job = watching.ExternalWatch({"engine": {"submit_host": "login"}}, tmp_path, None)
    lost, shown, forgotten = followed(job)
    # Its logs are asked for next, which reports why.
    assert (lost, shown, forgotten, answers) == ("", [], ["login"], [])
    answers[:] = [{"state": "pending", "line": ""}, *[GONE] * 99]
    lost, _, _ = followed(watching.ExternalWatch({"engine": {"submit_host": "login"}}, tmp_path, None))
    assert lost == "login: timed out" and answers


def beside(answer, *of_n2, hosts=("n1", "n2")):
    """Return a watch of a job with one host that may lead, and what it has asked; the last answer of n2 is repeated."""
    asked, of_n2 = [], list(of_n2)

    def ask(question, own, limit_s):
        asked.extend(own)
        found = {"n1": answer, "n2": of_n2.pop(0) if "n2" in own and len(of_n2) > 1 else of_n2[0]}
        return {host: found.get(host, GONE) for host in own}

    return watching.OverSsh(plan(hosts=hosts), ask), asked


def test_a_head_that_cannot_be_asked_ends_no_job_that_another_node_reports(clock):
    """Its sshd is down, and the other node answers for the job, until it knows of an end."""
    job, asked = beside(GONE, *[node()] * 300, node(alive=False, end=CUT_OFF))
    began = clock.now
    lost, shown, _ = followed(job)
    assert (lost, shown[0]) == ("", "  n1 gives no answer; n2 still takes part in the job")
    assert "  0:00:32   still: n1 gives no answer" in shown and len(set(shown)) == len(shown)
    assert clock.now - began > 500 and asked.count("n1") > 10


def test_of_many_nodes_a_few_answer_for_the_job(clock):
    job, asked = beside(GONE, node(), hosts=[f"n{number}" for number in range(1, 100)])
    assert job.read(2.0)["state"] == "running" and sorted(asked) == ["n1", "n2", "n3", "n4", "n5"]
    job, asked = beside(known(True), node())
    assert job.read(2.0)["state"] == "running" and asked == ["n1"]


# ---- the head is replaced by another host


class Nodes:
    """Three hosts that may lead, with one answer of each for every round; the last round again and again.

    A round begins when the host of the last head is asked, or would be.
    """

    def __init__(self, clock, *rounds):
        self.clock, self.rounds, self.visits, self.forgotten = clock, list(rounds), [], []
        self.plan = {**plan(3, ("n1", "n2", "n3")), "candidates": ["n1", "n2", "n3"]}

    def ask(self, question, own, limit_s):
        assert question == "state"
        self.visits.append(list(own))
        for about in own.values():
            self.clock.now += about["wait_s"]
        return {host: self.rounds[0][host] for host in own}

    def watch(self):
        job = watching.OverSsh(self.plan, self.ask, self.forgotten.append)
        at_once = job.read

        def read(wait_s):
            found = at_once(wait_s)
            self.rounds[:-1] = self.rounds[1:-1] if len(self.rounds) > 1 else []
            return found

        job.read = read
        return job

    def followed(self):
        shown = []
        lost = watching.follow(self.watch(), self.forgotten.append, shown.append)
        return lost, [
            line.strip() for at, line in enumerate(shown) if line not in shown[:at] and "   still: " not in line
        ]


def tells(answer, line, *restarts):
    return {**answer, "line": line, "restarts": list(restarts)}


def at(**answers):
    return {"n1": GONE, "n2": node(), "n3": node(), **answers}


def lead(elapsed_s, step, host="n1", term=0, **more):
    answer = head(host, term, **more)
    answer["cluster"]["elapsed_s"] = elapsed_s
    return tells(answer, f"step {step}", *(["n1: no report for 15 s"] * term))


def test_the_head_alone_is_asked_while_it_leads(clock):
    over = lead(9.0, 3, end=WELL, alive=False)
    nodes = Nodes(clock, at(n1=lead(1.0, 1)), at(n1=lead(2.0, 2)), at(n1=over))
    assert nodes.followed() == ("", ["step 1", "step 2", "step 3"])
    assert nodes.visits == [["n1"]] * 3 and nodes.forgotten == []
    # It failed for a reason that ends the whole job.
    nodes = Nodes(clock, at(n1=lead(9.0, 3, end=FAILED, alive=False)))
    assert nodes.followed() == ("", ["step 3"]) and nodes.visits == [["n1"]]
    # Its first state is not written yet.
    nodes = Nodes(clock, at(n1=node()), at(n1=lead(9.0, 3, end=WELL)))
    assert nodes.followed() == ("", ["step 3"]) and nodes.visits == [["n1"]] * 2


def test_a_watch_goes_on_with_the_new_head(clock):
    """The head is powered off: nobody has noticed, then nobody leads, then n2 does, and the job succeeds."""
    follows, chooses = at(), at(n2=node(follows=""), n3=node(follows=""))
    led = [at(n2=lead(each, step, "n2", 1), n3=node(follows="n2")) for each, step in ((50.0, 3), (59.0, 4))]
    over = at(n2=lead(60.0, 5, "n2", 1, end=WELL, alive=False))
    nodes = Nodes(clock, at(n1=lead(1.0, 1)), at(n1=lead(2.0, 2)), *[follows] * 15, *[chooses] * 15, *led, over)
    assert nodes.followed() == (
        "",
        [
            "step 1",
            "step 2",
            "n1 gives no answer; if it is lost, the other nodes choose a new head",
            "n1 is lost; the other nodes choose a new head",
            "n1: no report for 15 s",
            "step 3",
            "n2 leads the job now, in the place of n1",
            "step 4",
            "step 5",
        ],
    )
    # A host that gives no answer is asked every ten seconds; the new head alone while it leads.
    assert nodes.visits[2:5] == [["n1"], ["n2", "n3"], ["n2", "n3"]] and nodes.visits[-2:] == [["n2"]] * 2
    assert {"n1"} == set(nodes.forgotten) and sum("n1" in hosts for hosts in nodes.visits[2:]) in (3, 4)


def test_the_choice_of_a_new_head_is_shown_until_it_is_over_and_no_line_twice(clock, in_time):
    nodes, shown = Nodes(clock, at(n1=lead(1.0, 1)), *[at()] * 20, at(n1=lead(2.0, 2, end=WELL))), []
    watching.follow(nodes.watch(), nodes.forgotten.append, shown.append)
    line = "  n1 gives no answer; if it is lost, the other nodes choose a new head"
    assert shown[:2] == ["  step 1", line] and 3 <= len(shown[1:-1]) <= 20
    assert all(each.endswith("   still: n1 gives no answer") for each in shown[2:-1])
    assert len(set(shown)) == len(shown)


def test_a_job_without_progress_has_a_hint_once(clock):
    stuck = [{**runs(f"step {step}"), "stuck": True, "note": "no new progress"} for step in (2, 3)]
    shown = []
    job = Says(runs("step 1"), *stuck, runs("", state="over"))
    watching.follow(job, lambda _: None, shown.append, hint="  next: see")
    assert shown == ["  step 1", "  step 2", "  no new progress", "  next: see", "  step 3"]


def test_remarks_are_shown_when_they_begin_once_a_minute_and_when_they_end(clock, in_time):
    """The figures of the line move all the while."""
    apart, slow = {"apart": "n1, n2 train each for itself"}, {"slow": "slow: rank 3 on n2"}

    def line(second, remarks):
        text = "   ".join((f"0:{second // 60:02}:{second % 60:02}", f"step {second}", *remarks.values()))
        return {**runs(text), "lasting": remarks}

    remarks = [{}, apart, apart, {**apart, **slow}, *[{**apart, **slow}] * 40, slow, {}]
    lines = [line(2 * number, each) for number, each in enumerate(remarks)]
    _, shown, _ = followed(Says(*lines, runs("", state="over")))
    assert shown[:5] == [
        "  0:00:00   step 0",
        "  0:00:02   step 2   n1, n2 train each for itself",
        "  0:00:04   step 4",
        "  0:00:06   step 6   slow: rank 3 on n2",
        "  0:00:08   step 8",
    ]
    # A poll every 2 s for a minute, then one every 9 s.
    assert [line for line in shown[5:] if "n1, n2" in line] == [
        f"  {at}   n1, n2 train each for itself   slow: rank 3 on n2"
        for at in ("0:01:00   step 60", "0:01:14   step 74")
    ]
    assert shown[-4] == "  the nodes no longer train each for itself"
    assert shown[-2:] == ["  no rank is slow any more", "  0:01:30   step 90"]


def test_a_job_that_waits_in_a_queue_says_for_how_long(clock, in_time):
    _, shown, _ = followed(Says(*[runs("waits: Priority; no nodes", state="pending")] * 11, runs("", state="over")))
    assert shown == [
        "  waits: Priority; no nodes",
        "  0:00:08   still: waits: Priority",
        "  0:00:16   still: waits: Priority",
    ]


def test_a_head_whose_monitor_is_suspended_is_replaced(clock):
    """Its node answers all the while, with the state of before, and others have taken over."""
    old, led = lead(20.0, 2), lead(50.0, 3, "n2", 1)
    rounds = [at(n1=old), at(n1=old), at(n1=old, n2=node(follows="")), at(n1=old, n2=led, n3=node(follows="n2"))]
    nodes = Nodes(clock, *rounds, at(n2=lead(60.0, 4, "n2", 1, end=WELL)))
    assert nodes.followed()[1] == [
        "step 2",
        "n1: no report for 15 s",
        "step 3",
        "n2 leads the job now, in the place of n1",
        "step 4",
    ]
    assert nodes.visits == [["n1"], *[["n1"], ["n2", "n3"]] * 3, ["n2"]]


def test_a_controller_that_alone_does_not_reach_the_head_watches_on(clock):
    back = at(n1=lead(700.0, 9))
    nodes = Nodes(clock, at(n1=lead(1.0, 1)), *[at()] * 600, back, at(n1=lead(701.0, 9, end=WELL)))
    began = clock.now
    lost, shown = nodes.followed()
    assert (lost, shown[:2], shown[-1]) == (
        "",
        ["step 1", "n1 gives no answer; if it is lost, the other nodes choose a new head"],
        "step 9",
    )
    assert clock.now - began > 500


def test_an_earlier_head_that_is_back_is_not_believed(clock):
    """A watch that begins after the takeover asks the planned head first."""
    back = lead(20.0, 2, follows="n2")
    nodes = Nodes(clock, at(n1=back, n2=lead(90.0, 7, "n2", 1)), at(n2=lead(91.0, 8, "n2", 1, end=WELL)))
    assert nodes.followed()[1][1:] == ["step 7", "n2 leads the job now, in the place of n1", "step 8"]
    assert nodes.visits == [["n1"], ["n2", "n3"], ["n2"]]


def test_a_head_that_was_cut_off_does_not_end_the_watch(clock):
    """Its ranks have ended, and the others go on without it."""
    cut_off = lead(20.0, 2, end=CUT_OFF, alive=False)
    led = at(n1=cut_off, n2=lead(90.0, 7, "n2", 1), n3=node(follows="n2"))
    nodes = Nodes(clock, at(n1=cut_off), led, at(n2=lead(91.0, 8, "n2", 1, end=WELL)))
    assert nodes.followed()[1][-1] == "step 8"
    # Without any other it is the end.
    ended = node(alive=False, end=CUT_OFF)
    assert Nodes(clock, at(n1=cut_off, n2=ended, n3=ended)).followed()[0] == ""


def test_the_third_head_is_found_as_well(clock):
    second = at(n2=lead(50.0, 3, "n2", 1), n3=node(follows="n2"))
    gap = at(n2=GONE, n3=node(follows=""))
    third = at(n2=GONE, n3=lead(99.0, 8, "n3", 2))
    nodes = Nodes(clock, second, gap, gap, third, at(n2=GONE, n3=lead(99.5, 9, "n3", 2, end=WELL)))
    shown = nodes.followed()[1]
    assert "n2 is lost; the other nodes choose a new head" in shown
    assert shown[-2:] == ["n3 leads the job now, in the place of n2", "step 9"]


def test_a_watch_asks_silent_hosts_as_long_as_the_job_may_live(clock):
    nodes = Nodes(clock, at(n1=lead(1.0, 1)), at(n2=GONE, n3=GONE))
    began = clock.now
    assert nodes.followed()[0] == "n1: timed out"
    assert 3600 < clock.now - began < 3600 + watching.START_S + watching.MONITOR_S + 60


def test_a_watch_ends_where_no_host_that_may_lead_goes_on(clock):
    # All have ended their part, without an end of the job.
    ended = node(alive=False)
    assert Nodes(clock, at(n1=lead(1.0, 1)), at(n2=ended, n3=ended)).followed() == ("", ["step 1"])


def test_hosts_that_are_just_back_are_waited_for(clock):
    """All were powered off together; each monitor comes back with its machine."""
    booted = node(alive=False, monitor_lost={"restarted": True, "how": ""})
    nodes = Nodes(
        clock, at(n1=lead(1.0, 1)), *[at(n2=booted, n3=booted)] * 30, at(n1=lead(2.0, 2)), at(n1=lead(3.0, 3, end=WELL))
    )
    assert nodes.followed()[1] == ["step 1", "step 2", "step 3"]
    # One of them knows that the job has ended.
    ended = at(n2=booted, n3=node(alive=False, end=WELL))
    nodes, began = Nodes(clock, at(n1=lead(1.0, 1)), ended), clock.now
    assert nodes.followed() == ("", ["step 1"]) and clock.now - began < 10
