"""Progress lines: what is read from logs, and how it is shown."""

import math
import re
import signal

import pytest
from ansible.module_utils.trainyard.job.run.logs import progress
from hypothesis import given
from hypothesis import strategies as st

DEFAULT = re.compile(progress.DEFAULT_PATTERN)


def read(line, pattern=DEFAULT):
    return progress.parse_line(line, pattern)


@pytest.mark.parametrize(
    ("line", "metrics"),
    [
        ("step 4/20 epoch 2 loss 0.1 rate 5.4 it/s", {"step": 4, "steps": 20, "epoch": 2, "loss": 0.1, "rate": 5.4}),
        ("epoch: 12 step: 1875, loss is 0.03245", {"epoch": 12, "step": 1875, "loss": 0.03245}),
        ("Epoch [1/10], Step [100/600], Loss: 0.2567", {"epoch": 1, "step": 100, "steps": 600, "loss": 0.2567}),
        ("epoch=3 step=17 loss=1.5e-03", {"epoch": 3, "step": 17, "loss": 0.0015}),
        ("Epoch 3 | Step 17 | Loss 0.5", {"epoch": 3, "step": 17, "loss": 0.5}),
        ("[rank0] STEP 7 LOSS 1", {"step": 7, "loss": 1}),
        ("2026-11-20 10:15:00 INFO step: 5 / 10  train loss: .25", {"step": 5, "steps": 10, "loss": 0.25}),
        ("step 3 lr 0.1 loss 2,345.5 rate 1,234,567", {"step": 3, "loss": 2345.5, "rate": 1234567}),
        ("step 1 loss -0.5", {"step": 1, "loss": -0.5}),
        ("step 1 loss: nan", {"step": 1, "loss": math.nan}),
        ("step 1 loss -inf rate nan", {"step": 1, "loss": -math.inf, "rate": math.nan}),
        ("step 1 loss 2. done", {"step": 1, "loss": 2}),
        # Without a step nothing is counted.
        ("LOSS: 6.31", {"loss": 6.31}),
        ("misstep 4 loss 0.3", {"loss": 0.3}),
        ("step 1" + " " * 200 + "loss 0.5", {"step": 1, "loss": 0.5}),
        # A bar that holds the documented form, too.
        ("step 1/300 loss 4.990:   0%|   | 1/300 [00:00<00:10]", {"step": 1, "steps": 300, "loss": 4.99}),
        ("  0%|   | 1/300 [00:00<00:10]step 1/300 loss 4.990", {"step": 1, "steps": 300, "loss": 4.99}),
        ("step 1 loss 0.5 learning rate 0.1", {"step": 1, "loss": 0.5}),
    ],
)
def test_usual_spellings(line, metrics):
    assert read(line) == pytest.approx(metrics, nan_ok=True)


@pytest.mark.parametrize("line", ["", "loading data", "\0\x1b[31m\ufffd", "x" * progress.MAX_LINE + " step 1 loss 0.5"])
def test_other_lines_are_no_progress(line):
    assert read(line) is None


NUMBERS = {"2,3025854": 2.3025854, "0,123": 0.123, "12,5": 12.5, "1.234,5": 1234.5, "1,234.5": 1234.5}
NUMBERS.update({"1,234,567": 1234567, "-2,5e-3": -0.0025})
# A decimal comma, or thousands.
UNCLEAR = dict.fromkeys(["2,345", "1,2,3", "10.0.0.1"])


@pytest.mark.parametrize(("text", "value"), {**NUMBERS, **UNCLEAR}.items())
def test_decimal_commas_and_thousands(text, value):
    expected = {"step": 1} if value is None else {"step": 1, "loss": value}
    assert read(f"step 1 loss {text}") == (expected if value is not None else None)
    assert read(f"1 {text}", re.compile(r"(?P<step>\d+) (?P<loss>\S+)")) == expected


def test_a_pattern_of_ones_own():
    pattern = re.compile(r"it=(?P<step>\d+) acc=(?P<accuracy>\S+) (?P<note>\w+)(?: gb=(?P<memory>\d+))?")
    # Groups that are no number, or did not match, are omitted.
    assert read("it=1,000 acc=93.5 fine", pattern) is None
    assert read("it=1000 acc=1,093.5 fine", pattern) == {"step": 1000, "accuracy": 1093.5}
    assert read("it=1 acc=x fine", re.compile(r"acc=(?P<accuracy>\w+)")) is None
    either = re.compile(r"(?:e(?P<epoch>\d+))?s(?P<step>\d+)(?:e(?P<epoch2>\d+))?")
    assert read("e3s4", either) == {"epoch": 3, "step": 4}
    assert read("s4e3", either) == {"epoch": 3, "step": 4}


@pytest.mark.parametrize(
    ("pattern", "fault"),
    [
        (progress.DEFAULT_PATTERN, ""),
        ("(?P<step>[0-9]+)", ""),
        ("(", "not a regular expression: missing ), unterminated subpattern at position 0"),
        ("(?P<a>x)(?P<a>y)", "not a regular expression: redefinition of group name 'a' as group 2; was group 1"),
        ("step", "a regular expression without named groups, such as (?P<step>[0-9]+)"),
    ],
)
def test_patterns_are_checked(pattern, fault):
    assert progress.check_pattern(pattern).startswith(fault) and bool(progress.check_pattern(pattern)) == bool(fault)


@given(st.text(max_size=60))
def test_any_text_is_a_pattern_or_has_a_fault(text):
    if not progress.check_pattern(text):
        assert re.compile(text).groupindex


words = ["epoch", "step", "loss", "is", "rate", "train", "val", "%|", "[1/2]", "samples/s", "nan", "inf", "a", "é"]
marks = [".", ",", "/", ":", "=", "-", "1", "0", "123,456", "e5"]
phrases = ["{'epoch': ", "epoch 1", "step 1", "loss 1", "step 1/2", "9" * 50, "1 " * 20]
spaces = [" ", "   ", ": ", "\t", " " * 40]
pieces = st.sampled_from([*words, *marks, *phrases, *spaces])


@pytest.fixture
def alarm():
    """Ends a search that does not end by itself: the default pattern runs on every line that a script prints."""

    def ring(number, frame):
        raise TimeoutError("the default pattern does not come to an end")

    usual = signal.signal(signal.SIGALRM, ring)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, usual)


@pytest.mark.usefixtures("alarm")
@given(st.lists(pieces, min_size=1, max_size=8))
def test_no_line_keeps_the_default_pattern_busy_for_ever(parts):
    unit = "".join(parts)
    line = (unit * (progress.MAX_LINE // len(unit)))[: progress.MAX_LINE]
    signal.alarm(60)
    read(line)
    read(line[: progress.MAX_LINE - 1] + "\0")
    signal.alarm(0)


PHRASES = "step 1 ;epoch 1 ;epoch 1 step 1 ;epoch 1 step 1 loss ;step 1 epoch 1 loss ;loss 1 ;val_loss 1 ;[1/1] ;loss: "
UNITS = [*PHRASES.split(";"), "step:1", "1", " ", "loss" + "0," * 9, "%| | ", "━", "a", "{'epoch': "]


@pytest.mark.usefixtures("alarm")
@pytest.mark.parametrize("unit", UNITS)
def test_lines_that_almost_match_come_to_an_end(unit):
    signal.alarm(60)
    read((unit * progress.MAX_LINE)[: progress.MAX_LINE])
    read((unit * 10_000)[:10_000])
    read(("epoch 1 step 1 loss " + unit * progress.MAX_LINE)[: progress.MAX_LINE])


@given(st.floats())
def test_every_number_can_be_shown(value):
    assert progress.number(value)


def test_the_progress_line():
    assert progress.progress_line(0, 4, 1.2, {}) == "0:00:01   0/4 ranks running"
    assert progress.progress_line(0, 4, 62, {"step": 7}, ended=True) == "0:01:02   all ranks have ended   step 7"
    assert progress.progress_line(1, 4, 62, {}, ended=True) == "0:01:02   ending 1 rank"
    metrics = {
        "memory": 2.5,
        "accuracy": 91.0,
        "rate": 5123.4,
        "loss": 0.1234,
        "epoch": 2.0,
        "steps": 200.0,
        "step": 40.0,
    }
    assert progress.progress_line(4, 4, 62, metrics) == (
        "0:01:02   4/4 ranks running   step 40/200   epoch 2   loss 0.1234   rate 5123   accuracy 91   memory 2.5"
    )
    assert progress.metrics_text({"step": 3.0, "loss": math.nan}) == "step 3   loss is not a number"
    assert progress.metrics_text({"steps": 3.0}) == "steps 3"
