"""Times and durations that hosts send: whatever fits their shapes can be shown, in any time zone."""

import json
import os
import re
import time
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.base import shapes
from ansible.module_utils.trainyard.base.shapes import DURATION, MAX_TIME, TIME, as_time, misfit
from ansible.module_utils.trainyard.bundle import use
from ansible.module_utils.trainyard.cluster import ssh_mesh
from ansible.module_utils.trainyard.job.file import mindspore_tls
from ansible.module_utils.trainyard.job.record import excluded_hosts, run_record
from ansible.module_utils.trainyard.job.run.lead.succession import copy_shape
from ansible.module_utils.trainyard.job.run.logs import failure_kinds, failures, progress
from ansible.module_utils.trainyard.job.run.measure import checkpoints, goodput
from ansible.module_utils.trainyard.job.run.wire import answers, messages
from ansible.module_utils.trainyard.job.schedulers.kubernetes import state as kubernetes
from ansible.module_utils.trainyard.report import junit, text
from ansible.module_utils.trainyard_controller.cluster import tls_authority
from ansible.module_utils.trainyard_node.job.run.evidence import checkpoint_poll, log_tail
from ansible.module_utils.trainyard_node.job.run.ranks import rank_exits
from ansible.module_utils.trainyard_node.job.schedulers import slurm_job
from ansible.module_utils.trainyard_node.machine import install_lock
from hypothesis import example, given
from hypothesis import strategies as st

PROJECT = Path(__file__).resolve().parents[3]
NUMBERS = st.one_of(st.floats(), st.integers(), st.floats(0, MAX_TIME), st.floats(MAX_TIME - 2, MAX_TIME + 2))
# How times are named in answers and messages, and durations.
TIMES = {"time", "started", "finished", "since", "begun", "ended"}
# Results of calculations with steps, of which ranks print any number; they are shown as numbers.
OF_STEPS = {"lost_s", "productive_s"}


@pytest.fixture(params=["UTC0", "EAST-14", "WEST+12"])
def zone(request):
    """Show times in this time zone."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = request.param
    time.tzset()
    yield request.param
    os.environ.pop("TZ")
    if before is not None:
        os.environ["TZ"] = before
    time.tzset()


@given(NUMBERS)
@example(0)
@example(MAX_TIME)
@example(1e18)
@example(-1.0)
def show(value):
    """Show a time with each function that does."""
    if misfit(value, TIME):
        return
    phase = {"name": "hosts", "state": "pass", "reason": "", "started": value, "elapsed_s": 1, "checks": []}
    shown = [
        text.utc(value),
        excluded_hosts.since({"since": int(value), "job_id": "digits-1"}),
        *run_record.removed_text({"n1": value}, ["n1"]),
        mindspore_tls.day(value),
        ssh_mesh._date(value),
        str(install_lock.Holder("n1", 7, value)),
        tls_authority.moment(value).isoformat(),
        use._time(int(value)),
        junit.junit({"cluster": "c", "state": "pass", "elapsed_s": 1, "started": value, "phases": [phase]}),
    ]
    assert all(shown)


def test_what_fits_the_shape_of_a_time_can_be_shown(zone):
    show()
    assert text.utc(MAX_TIME).startswith("6325-")


def test_each_module_that_shows_a_given_time_does_so_above():
    """A function that is added needs a line in show(), and times that went through the shape."""
    calls = re.compile(r"\b(?:gmtime|localtime|fromtimestamp|ctime)\([^)]")
    shows = {path.name for path in PROJECT.glob("module_utils/**/*.py") if calls.search(path.read_text())}
    shows |= {path.name for path in PROJECT.glob("plugins/**/*.py") if calls.search(path.read_text())}
    # No time that ssh_authority.py writes comes from a host; that of failures.py is tried below.
    others = {"ssh_authority.py", "failures.py"}
    modules = (text, excluded_hosts, run_record, mindspore_tls, ssh_mesh, install_lock, tls_authority, junit, use)
    assert shows == {Path(module.__file__).name for module in modules} | others


@given(NUMBERS, NUMBERS)
@example(MAX_TIME, 0)
def test_what_fits_the_shape_of_a_duration_can_be_shown_and_so_can_the_time_between_two_times(one, other):
    for value in [*(each for each in (one, other) if not misfit(each, DURATION))]:
        assert len(progress.clock(value)) < 20 and len(checkpoints._age(value)) < 20
    if not misfit(one, TIME) and not misfit(other, TIME):
        assert misfit(one - other, DURATION) == ""


@given(st.one_of(st.floats(allow_nan=False), st.integers()))
def test_a_file_has_a_time_whatever_its_user_set(value):
    assert misfit(as_time(value), TIME) == ""
    assert misfit(value, TIME) or as_time(value) == value


@pytest.mark.parametrize("value", [1e18, -1, float("inf"), float("nan"), "1", None, True, MAX_TIME + 1])
def test_what_no_calendar_has_is_no_time(value):
    assert misfit({"end": {"finished": value}}, {"end": {"finished": TIME}}) == (
        f"end.finished is {value!r}, expected a time: seconds since 1970, up to the year 6325"
    )


def fields(shape, name=""):
    """Yield the names in a shape, each with its own shape."""
    inner = {}
    if isinstance(shape, shapes.Exact):
        inner = shape.names
    elif isinstance(shape, shapes.ByKind):
        inner = {**shape.all, **{f"{kind}-": each for kind, each in shape.kinds.items()}}
    elif isinstance(shape, dict):
        inner = shape
    elif isinstance(shape, shapes.Each):
        yield from fields(shape.value, name)
    elif isinstance(shape, shapes.Few):
        yield from fields(shape.shape, name)
    elif isinstance(shape, shapes.All):
        yield from (field for each in shape.shapes for field in fields(each, name))
    elif isinstance(shape, list):
        yield from fields(shape[0], name)
    elif type(shape) is tuple:
        yield from (field for each in shape for field in fields(each, name))
    for key, each in inner.items():
        yield key.removeprefix("?"), each
        yield from fields(each, key)


def all_fields():
    declared = [
        *answers.SHAPES.values(),
        *messages.shapes_from_node("n1", 2, 1).values(),
        *messages.shapes_from_head(["rank0"], 1, ["n1"]).values(),
        copy_shape(["n1"], 1),
        failure_kinds.FAILURE,
        failure_kinds.EXIT,
    ]
    return [field for shape in declared for field in fields(shape)]


def test_each_field_with_the_name_of_a_time_has_the_shape_of_one():
    """A field that is added needs one, too."""
    found = all_fields()
    assert {"finished", "elapsed_s", "after_s", "left_s", "age_s"} <= {name for name, _ in found}
    for name, shape in found:
        timed = name in TIMES or (name.endswith("_s") and name not in OF_STEPS)
        if timed and not isinstance(shape, (dict, list, shapes.Exact)) and misfit({}, shape) and misfit([], shape):
            assert misfit(1e18, shape) and misfit(-1e18, shape), name


@pytest.mark.parametrize("when", ["9999-12-31_23:59:59", "0001-01-01_00:00:00", "6400-01-01_00:00:00"])
def test_a_failure_has_no_time_that_no_message_can_have(when, zone):
    log = (
        "E1231 23:59:58.000000 7 torch/api.py:1] failed (exitcode: 1) local_rank: 0 (pid: 7)\n"
        f"Root Cause (first observed failure):\n time : {when}\n rank : 0 (local_rank: 0)\n exitcode : 1 (pid: 7)\n"
    )
    assert failures.root_cause(log) == {"rank": 0, "exit_code": 1, "signal": None, "time": None}


@pytest.mark.parametrize("stamp", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59-23:59", "never", None])
def test_a_time_of_a_cluster_that_was_never_set_is_none(stamp):
    assert kubernetes.seconds(stamp) is None
    assert kubernetes.seconds("2026-11-21T20:00:00Z") == 1795291200


@pytest.mark.parametrize(("text", "time"), [
    ("1795291200", 1795291200), ("0", None), ("Unknown", None), ("9" * 20, None), ("9" * 5000, None), ("\u0661", None),
])  # fmt: skip
def test_times_of_slurm(text, time):
    assert slurm_job._seconds(text) == time


def test_the_time_left_is_not_known_where_a_rank_prints_any_number_of_steps():
    pace = {"first": 0, "last": 10, "first_s": 0, "last_s": 10, "last_epoch": None, "rising": True, "over": False}
    assert (goodput.left_s(pace, 20), goodput.left_s(pace, 1e300)) == (10, None)


def test_times_of_files_that_users_write_fit_messages(tmp_path):
    (tmp_path / "exits").mkdir()
    for name, at in (("rank0", 1e15), ("rank1", 1795291200.5), ("rank2", -1)):
        (tmp_path / "exits" / f"{name}.json").write_text(json.dumps({"result": "exit-code", "time": at}))
    assert list(rank_exits.read_exits(tmp_path)) == ["rank1"]
    checkpoint = tmp_path / "step_10.pt"
    checkpoint.write_bytes(b"x")
    os.utime(checkpoint, (-1000, -1000))
    assert [sample.time for sample in checkpoint_poll.poll(str(checkpoint))] == [0]


def test_a_metric_that_a_user_calls_elapsed_s_is_no_time_of_ours(tmp_path):
    log, pattern = tmp_path / "logs" / "rank_0.log", r"step (?P<step>\d+) loss (?P<loss>\S+) at (?P<elapsed_s>\S+)"
    tail = log_tail.Tail(tmp_path, log.name, pattern, "")
    log.parent.mkdir()
    tail.begin_series()
    log.write_text("step 1 loss nan at 1e300\n")
    tail.read(2.5)
    assert tail.lost["first"]["elapsed_s"] == 2.5
    assert json.loads((tmp_path / "metrics.jsonl").read_text())["elapsed_s"] == 2.5
