"""Messages that monitors take: each that fits its declaration is dealt with, and each other one ends a connection.

What fits is drawn from the declarations themselves (messages.py), to their bounds: a field that somebody reads and that
no declaration demands, or a number beyond what is counted on, is an exception here.
"""

import asyncio
import copy
import json
from types import SimpleNamespace

import pytest
from ansible.module_utils.trainyard.base import shapes
from ansible.module_utils.trainyard.base.shapes import misfit
from ansible.module_utils.trainyard.job.run.wire import messages, monitor_files
from ansible.module_utils.trainyard_node.job.run.monitor import connections as wire
from ansible.module_utils.trainyard_node.job.run.monitor.monitor import Monitor
from ansible.module_utils.trainyard_node.job.run.monitor.node_runner import NodeRunner
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from job_cluster import Cluster
from simulated_job import SimulatedJob
from test_answers import lies
from test_wire import REPORT

TEXTS = st.one_of(st.sampled_from(["", "x", "rank 1 on n2", "\x1b[2J", "é\n\0"]), st.builds("x".__mul__, st.just(5000)))
NUMBERS = st.sampled_from([0, 1, 2, 7, -1, 100, 1.5, -0.5, 1e15, -1e15, 2.0**62, 1e300, 1e-300, 10**18])
PLAIN = {str: TEXTS, bool: st.booleans(), shapes.NOTHING: st.none(), float: NUMBERS, int: NUMBERS, object: st.none()}
# Values for shapes that are functions.
FUNCTIONS = {
    "a number": NUMBERS,
    "a number that steps can be": NUMBERS,
    "a process of the plan": st.sampled_from(["agent", "mpirun", "scheduler", "rank0", "rank1"]),
    "a frame: function, file, line, owner": st.tuples(TEXTS, TEXTS, NUMBERS, st.sampled_from(["", "program"])).map(
        list
    ),
    "an IP address": st.sampled_from(["127.0.0.1", "10.0.0.2", "fe80::2%eth0"]),
}


def fitting(shape):
    """A strategy for values of a shape; now and then one that is none, as bounds of texts are not known here."""
    if isinstance(shape, shapes.Exact):
        return _names(shape.names)
    if isinstance(shape, shapes.Each):
        return st.dictionaries(fitting(shape.name), fitting(shape.value), max_size=3)
    if isinstance(shape, shapes.ByKind):
        return st.one_of(
            *(_names({"kind": shapes.Is((kind,)), **shape.all, **own}) for kind, own in shape.kinds.items())
        )
    if isinstance(shape, shapes.All):
        # The same dictionary, as each of them has it.
        return st.tuples(*map(fitting, shape.shapes)).map(lambda each: {key: one[key] for one in each for key in one})
    if isinstance(shape, shapes.Few):
        return st.lists(fitting(shape.shape), max_size=min(3, shape.most))
    if isinstance(shape, shapes.Whole):
        return st.sampled_from(sorted({shape.least, min(shape.least + 1, shape.most), shape.most}))
    if isinstance(shape, shapes.Number):
        return st.floats(shape.least, shape.most)
    if isinstance(shape, shapes.Text):
        return TEXTS.map(lambda text: text[: shape.most])
    if isinstance(shape, shapes.Is):
        return st.sampled_from(sorted(shape.values, key=str))
    if isinstance(shape, tuple):
        return st.one_of(*map(fitting, shape))
    if isinstance(shape, list):
        return st.lists(fitting(shape[0]), max_size=3)
    if isinstance(shape, dict):
        return _names(shape)
    return PLAIN[shape] if shape in PLAIN else FUNCTIONS[shape.__doc__]


def _names(names):
    demanded = {name: fitting(shape) for name, shape in names.items() if not name.startswith("?")}
    optional = {name[1:]: fitting(shape) for name, shape in names.items() if name.startswith("?")}
    return st.fixed_dictionaries(demanded, optional={key: optional[key] for key in optional.keys() - demanded.keys()})


BUDGET = 2
FROM_NODE = messages.shapes_from_node("n2", 2, BUDGET)
FROM_HEAD = messages.shapes_from_head(["rank1"], BUDGET, ["n1", "n2", "n3"])
# A report whole as it is drawn, and one as nodes send it, in which some of it is drawn.
DRAWN = {name.lstrip("?"): fitting(shape) for name, shape in FROM_NODE["report"].names.items()}
REPORTS = st.fixed_dictionaries({}, optional=DRAWN).map(lambda drawn: {"report": {**REPORT, **drawn}})
NODE_MESSAGES = st.one_of(REPORTS, *(fitting(shapes.Exact({name: shape})) for name, shape in FROM_NODE.items()))
HEAD_MESSAGES = st.one_of(*map(fitting, FROM_HEAD.values()))


@pytest.fixture
def head():
    """Makes the head's state of a job of two nodes, on a clock of the test's own."""
    hang = {"after_s": 5, "first_s": 5, "pause_s": 5, "pause_pattern": ""}
    options = {"slow_ranks": True, "max_restarts": BUDGET, "silent_after_s": 15}
    return lambda: SimulatedJob(hang=hang, stop={"signal": "TERM", "grace_s": 30}, **options)


def takes(receive, *arguments):
    """Whether a monitor has taken a message; a BadMessage ends the connection, and nothing else may be raised."""
    try:
        receive(*arguments)
    except messages.BadMessage:
        return False
    return True


@pytest.fixture
def node(tmp_path, monkeypatch):
    """Makes the loop of a node's monitor that starts and ends nothing, with what it has sent; it may lead."""
    job = Cluster(tmp_path, ["wait"], ["wait"], ["wait"], max_restarts=BUDGET, n2={"slow_ranks": True})
    monkeypatch.setattr(NodeRunner, "keep", lambda _, name, state: json.dumps(state, allow_nan=False) and "")

    def make():
        loop = Monitor(job.nodes[1].dir).loop
        nothing = SimpleNamespace(
            exits=dict, main=lambda _: None, restart=lambda *_: None, end=lambda: None, unwritten=""
        )
        loop._runner.supervisor = nothing
        loop._runner.taker = SimpleNamespace(take=lambda _: None)
        return loop

    return make


EXCLUDED_FOR_NOTHING = {"report": {**REPORT, "excluded": {"reason": "", "temporary": False}}}
slow = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))


@slow
@given(st.lists(NODE_MESSAGES, min_size=1, max_size=4))
@example([EXCLUDED_FOR_NOTHING])
def test_a_head_deals_with_whatever_fits(head, drawn):
    job = head()
    job.step()
    for message in drawn:
        takes(job.send, "n2", message)
        # It says nothing that a node would not take; decide() checks what the controller reads.
        messages.check_from_head(job.state.message_for("n2", job.time()), ["rank1"], BUDGET)
        for later in (0.5, 1.0, 14.0, 20.0):
            job.now += later
            job.send("n1", {"report": job.report("n1")})
            job.decide()


@slow
@given(st.lists(HEAD_MESSAGES, min_size=1, max_size=4))
def test_a_node_deals_with_whatever_fits(node, drawn):
    async def all_of_them():
        loop, sent = node(), []
        for message in drawn:
            takes(loop.receive, SimpleNamespace(send=sent.append), message)
            loop.inspect_and_save()
            messages.check_from_node({"report": loop._runner.report}, "n2", 3, BUDGET)
        assert misfit(loop._runner.end or None, (monitor_files.END, shapes.NOTHING)) == ""

    asyncio.run(all_of_them())


@slow
@given(st.data())
def test_whatever_lacks_a_field_or_has_a_wrong_one_is_refused_or_dealt_with(head, node, data):
    async def one_message():
        job = head()
        job.step()
        takes(job.send, "n2", copy.deepcopy(data.draw(lies(data.draw(NODE_MESSAGES)))))
        job.decide()
        takes(node().receive, SimpleNamespace(send=[].append), data.draw(lies(data.draw(HEAD_MESSAGES))))

    asyncio.run(one_message())


def test_a_message_that_fits_is_drawn_of_every_kind():
    """The strategies above would prove nothing if what they draw were mostly refused."""
    counts = dict.fromkeys(FROM_NODE, 0)

    @settings(max_examples=300, deadline=None, database=None, derandomize=True)
    @given(NODE_MESSAGES)
    def draw(message):
        (name,) = message
        counts[name] += not misfit(message[name], FROM_NODE[name])

    draw()
    assert min(counts[name] for name in ("report", "stacks", "samples")) > 3 and counts["stopped"], counts


def test_what_goes_wrong_with_a_message_ends_its_connection_alone(capsys):
    """The monitor's log names the error, and its other connections stay."""

    async def one_frame():
        def hear(line, message):
            raise KeyError("who")

        line = wire.NodeConnection("token", hear, lambda _: None, "n1")
        line._transport = SimpleNamespace(abort=lambda: ended.append(True))
        line._keys = {"head": b"h", "node": b"n"}
        line.authenticated.set_result(True)
        sealed = (
            wire.Connection._next_mac(SimpleNamespace(_keys=line._keys, _numbers={"head": 0}), "head", b"{}") + b"{}"
        )
        line.data_received(len(sealed).to_bytes(4, "big") + sealed)
        assert ended == [True] and not line.open

    ended = []
    asyncio.run(one_frame())
    assert capsys.readouterr().out == "connection with n1 ended: KeyError: 'who'\n"
