"""Progress as frameworks print it by themselves: a line of each, as it stands in a log, and lines that only look so."""

import json
import math
import re
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.job.run.logs.progress import DEFAULT_PATTERN, PLACES, compile_pattern, parse_line
from ansible.module_utils.trainyard.job.run.logs.progress_reader import merged, read_lines
from ansible.module_utils.trainyard.job.run.measure import goodput
from ansible.module_utils.trainyard_node.job.run.evidence.log_tail import Tail
from hypothesis import example, given
from hypothesis import strategies as st

PATTERN = compile_pattern(DEFAULT_PATTERN)
CORPUS = Path(__file__).parents[3] / "fixtures" / "progress"
EXPECTED = json.loads((CORPUS / "expected.json").read_text())
BAR = "Epoch 0:  50%|█████     | 100/200 [00:10<00:10,  9.80it/s, v_num=0, train_loss=0.345]"
TITAN = (
    "[titan] 2026-11-01 10:00:00,123 - root - INFO - \x1b[31mstep: 1,010  \x1b[32mloss:  7.1234  "
    "\x1b[38;2;180;60;0mgrad_norm:  1.2345  \x1b[33mmemory: 10.50GiB(11.05%)  \x1b[34mtps: 5,123  "
    "\x1b[36mtflops: 30.11  \x1b[35mmfu: 9.65%\x1b[39m"
)
MEGATRON = (
    " [2026-11-01 10:00:00] iteration       10/     500 | consumed samples:          160 | elapsed time per iteration "
    "(ms): 1234.5 | learning rate: 1.500000E-04 | global batch size:    16 | lm loss: 9.876543E+00 | loss scale: 1.0 | "
    "grad norm: 1.234 | number of skipped iterations:   0 | number of nan iterations:   0 |"
)
TIMERS = (
    "[2026-11-01 10:00:00,000] [INFO] [timer.py:260:stop] epoch=0/micro_step=10/global_step=10, "
    "RunningAvgSamplesPerSec=120.1, CurrSamplesPerSec=130.25, MemAllocated=1.2GB, MaxMemAllocated=2.3GB"
)


@pytest.mark.parametrize(
    ("line", "metrics"),
    [
        # Older versions of transformers write numbers, newer ones strings.
        ("{'loss': 0.4321, 'grad_norm': 1.2, 'epoch': 0.5}", {"loss": 0.4321, "grad_norm": 1.2, "epoch": 0.5}),
        ("{'loss': '0.4321', 'epoch': '0.5'}", {"loss": 0.4321, "epoch": 0.5}),
        (BAR, {"epoch": 0, "step": 100, "steps": 200, "rate": 9.8, "loss": 0.345}),
        (" 45%|██▌  | 45/100 [00:30<00:37, 14.8it/s, loss=0.1]", {"step": 45, "steps": 100, "rate": 14.8, "loss": 0.1}),
        ("Training:  10%|█         | 5/50 [00:10<01:30, 2.00s/it]", {"step": 5, "steps": 50, "rate": 0.5}),
        ("Training:   0%|          | 0/50 [00:00<?, ?it/s]", {"step": 0, "steps": 50}),
        (MEGATRON, {"step": 10, "steps": 500, "loss": 9.876543}),
        ("steps: 10 loss: 2.3010 iter time (s): 0.512 samples/sec: 31.250", {"step": 10, "loss": 2.301, "rate": 31.25}),
        ("steps: 10 loss: 2.3 aux: 0.1 iter time (s): 0.5 samples/sec: 31.2", {"step": 10, "loss": 2.3, "rate": 31.2}),
        (TIMERS, {"step": 10, "rate": 130.25}),
        # PyTorch's tutorial on DDP; its number of steps is that of each epoch.
        ("[GPU0] Epoch 3 | Batchsize: 32 | Steps: 40", {"epoch": 3}),
        ("Epoch 3 | Batchsize 32 | Steps 40 | Loss 0.0121", {"epoch": 3, "loss": 0.0121}),
        (TITAN, {"step": 1010, "loss": 7.1234, "rate": 5123}),
        # Keras 2; the corpus has Keras 3.
        (" 10/100 [==>.......] - ETA: 12s - loss: 0.4567 - accuracy: 0.81", {"step": 10, "steps": 100, "loss": 0.4567}),
        ("epoch: 1 step: 1875, loss is 0.0234", {"epoch": 1, "step": 1875, "loss": 0.0234}),
        ("\x1b[32mstep 1,200/10,000 loss 0.5\x1b[0m", {"step": 1200, "steps": 10000, "loss": 0.5}),
    ],
)  # fmt: skip
def test_lines_of_frameworks(line, metrics):
    assert parse_line(line, PATTERN) == metrics


@pytest.mark.parametrize("name", ["step", "iter", "iteration", "it", "batch", "update", "It"])
@pytest.mark.parametrize("form", ["{} 10 loss 2.0", "{}=10 loss=2.0", "{}: 10, loss: 2.0", "loss 2.0 {} 10"])
def test_a_step_has_any_documented_name_in_any_form(name, form):
    assert parse_line(form.format(name), PATTERN) == {"step": 10, "loss": 2}


@pytest.mark.parametrize("rate", ["rate 30", "30 samples/s", "30it/s", "it/s 30", "tps: 30", "30 tps"])
def test_a_rate_stands_before_or_behind_its_unit(rate):
    assert parse_line(f"step 10 loss 2.0 {rate}", PATTERN) == {"step": 10, "loss": 2, "rate": 30}


def read_log(name):
    """Every reading of a log, which is divided as Tail divides it."""
    text = (CORPUS / f"{name}.log").read_bytes().decode()
    return [found for line in re.split(r"[\r\n]", text) for found in [parse_line(line, PATTERN)] if found]


@pytest.mark.parametrize("name", EXPECTED)
def test_logs_of_programs(name):
    assert read_log(name) == EXPECTED[name]


# The metrics at the end of the default output of each program. Without the number of epochs there is no total.
RUNS = {
    "accelerate": {"epoch": 1, "step": 100, "rate": 1541.41, "loss": 0},
    "fastai": {"epoch": 3, "step": 48, "steps": 48, "loss": 0.793003},
    "keras": {"epoch": 2, "step": 34, "steps": 34, "loss": 0.9492},
    "keras_lines": {"epoch": 2, "step": 34, "steps": 34, "loss": 0.7458},
    "lightning": {"epoch": 2, "step": 939, "steps": 939, "rate": 72.36, "loss": 0.088},
    "lightning_tqdm": {"epoch": 2, "step": 939, "rate": 23.04, "loss": 0.0618},
    "mmengine": {"epoch": 3, "step": 300, "loss": 0},
    "transformers": {
        **{"epoch": 2, "step": 40, "steps": 40, "rate": 41.21, "loss": 4.318},
        **{"learning_rate": 1.25e-06, "grad_norm": 0.6193},
    },
    "ultralytics": {"epoch": 3, "step": 12, "steps": 12, "rate": 12.7},
}  # fmt: skip
# Named steps without the number of epochs; with it; the whole run's; of a resumed run; counted from 0.
BATCHES = "".join(f"Epoch {epoch} batch {batch}/16 loss 0.5\n" for epoch in (1, 2) for batch in (8, 15))
OF_EPOCHS = "".join(f"Epoch [{epoch}/3], Step [{step}/600], Loss: 0.25\n" for epoch in (1, 2) for step in (10, 600))
OF_ALL = "".join(f"epoch {1 + step // 10}/3 step {step}/30 loss 0.5\n" for step in range(1, 27))
HEADINGS = "".join(f"Epoch {epoch}\n---\nloss: 2.3  [   64/  640]\nloss: 2  [  640/  640]\n" for epoch in (1, 2))
RICH = "Epoch 0/2 ━━━━━━━━━━━━━━━━ {}/313 0:00:01 • 0:00:00 99.00it/s train_loss:\n         0:00:00              {}\n"
BUILDING = "Building labels for train dataset: 100%|███| 128/128 [00:01<00:00, 9.0it/s]\n"
LOGGED = (
    "Training:  95%|███| 357/375 [00:09<00:00, 9.0it/s]\n{0}Training: 100%|███| 375/375 [00:10<00:00, 8.0it/s]{0}\n"
)
UNNAMED = "  0%| | 0/64 [00:00<?, ?it/s]\n 10%|█ | 2/20 [00:00<00:02, 9.0it/s]\nloss: 0.5\n{}\n"


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        *(((CORPUS / f"runs/{name}.log").read_bytes().decode(), end) for name, end in RUNS.items()),
        (BATCHES, {"epoch": 2, "step": 31, "loss": 0.5}),
        ("Namespace(epochs=3, lr=0.1)\n" + BATCHES, {"epoch": 2, "step": 31, "steps": 48, "loss": 0.5}),
        (OF_EPOCHS, {"epoch": 2, "step": 1200, "steps": 1800, "loss": 0.25}),
        (OF_ALL, {"epoch": 3, "step": 26, "steps": 30, "loss": 0.5}),
        ("Epoch [3/3], Step [10/600], Loss: 0.5\n", {"epoch": 3, "step": 1210, "steps": 1800, "loss": 0.5}),
        ("Epoch 0/2: 5/10 loss 0.5\nEpoch 1/2: 5/10 loss 0.5\n", {"epoch": 1, "step": 15, "steps": 30, "loss": 0.5}),
        ("step 20/200 epoch 1 loss 1\nstep 40/200 epoch 2 loss 1", {"epoch": 2, "step": 40, "steps": 200, "loss": 1}),
        ("Namespace(epochs=5)\nstep 20/200 epoch 1 loss 1\n", {"epoch": 1, "step": 20, "steps": 200, "loss": 1}),
        # A job that failed in its first epoch was shown as 128/128.
        ("Epoch 1/5: 100%|██| 128/128 [00:01<00:00, loss=1]\n", {"epoch": 1, "step": 128, "steps": 640, "loss": 1}),
        (HEADINGS, {"epoch": 2, "step": 1280, "loss": 2}),
        ("[00100/2000] loss=0.1 steps/s=691\n", {"step": 100, "steps": 2000, "rate": 691, "loss": 0.1}),
        (RICH.format(313, 0.031), {"epoch": 0, "step": 313, "steps": 939, "rate": 99, "loss": 0.031}),
        (BUILDING + "step 2/12 loss 1\n" + BUILDING, {"step": 2, "steps": 12, "loss": 1}),
        (LOGGED.format("2026-11-28 INFO - saving, eval loss 0.4 "), {"step": 375, "steps": 375, "rate": 8}),
        # Below the heading of an evaluation, up to the next one.
        ("- Train metrics:\n  Loss: 0.9\n- Test metrics:\n  Acc: 1\n  Loss: 0.2\n", {"loss": 0.9}),
        ("- Test metrics:\n  Loss: 0.2\n- Train metrics:\n  Loss: 0.9\n", {"loss": 0.9}),
        # Bars without a name: that of data, of the training beside whose bar a loss is printed, of an evaluation.
        (UNNAMED.format("100%|█| 20/20 [00:01<00:00, 9.0it/s]"), {"step": 20, "steps": 20, "rate": 9, "loss": 0.5}),
        (UNNAMED.format("100%|█| 64/64 [00:01<00:00, 9.0it/s]"), {"loss": 0.5}),
        ("  epoch  valid_loss  train_loss\n      2  0.4  0.5\n", {"epoch": 2, "loss": 0.5}),
    ],
)  # fmt: skip
def test_a_log_states_how_far_the_whole_run_is(tmp_path, log, expected):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "rank_0.log").write_bytes(log.encode())
    tail = Tail(tmp_path, "rank_0.log", DEFAULT_PATTERN)
    tail.read(1.0)
    tail.drain(1.0, True)
    assert tail.last == expected
    assert merged(read_lines(log, DEFAULT_PATTERN)) == expected


def test_time_left_is_known_once_steps_count_through_the_run(tmp_path):
    (tmp_path / "logs").mkdir()
    tail, left = Tail(tmp_path, "rank_0.log", DEFAULT_PATTERN), []
    for at, line in enumerate(OF_EPOCHS.splitlines(keepends=True)[:3]):
        with (tmp_path / "logs" / "rank_0.log").open("a") as log:
            log.write(line)
        tail.read(10.0 * at)
        left.append(goodput.left_s(tail.pace, tail.last["steps"]))
    assert left == [None, 20.3, 39.7] and tail.pausing is False
    tail.begin_attempt()
    assert tail.pace is None


@pytest.mark.parametrize("line", (CORPUS / "not_progress.log").read_text().splitlines())
def test_other_lines_are_no_progress(line):
    assert parse_line(line, PATTERN) is None


def test_a_pattern_of_the_jobs_own_decides_alone():
    assert parse_line(BAR, compile_pattern(r"v_num=(?P<version>\d+)")) == {"version": 0}


def test_a_bar_that_writes_over_itself_is_followed(tmp_path):
    (tmp_path / "logs").mkdir()
    log = tmp_path / "logs" / "rank_0.log"
    tail = Tail(tmp_path, "rank_0.log", DEFAULT_PATTERN)
    bar = "\rTraining:  {0}%|█    | {0}/100 [00:10<00:10,  9.80it/s, loss={1}]"
    log.write_text("".join(bar.format(step, 1 / step) for step in range(1, 60)))
    tail.read(1.0)
    assert (tail.last["step"], tail.last["steps"]) == (58, 100), "the last one may be half written"
    with log.open("a") as more:
        more.write(bar.format(60, 0.5) + "\n")
    tail.read(2.0)
    assert (tail.last["step"], tail.last["loss"]) == (60, 0.5)
    steps = [json.loads(line)["step"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert steps == [*range(1, 61)]


@given(st.text(alphabet="{}'loss:epoch, %|[]<=it/s.0123456789\r\x1b[mstep\x08━ ", max_size=300))
@example("{'loss': 1, 'epoch': inf, 'step': 5}\n{'loss': 1, 'epoch': nan, 'step': 5}")
@example(f"Epoch 1/{'9' * 400}: 5/{'9' * 400} loss 1\nEpoch {'9' * 400}/2: 5/0 loss 1\nEpoch 0/0: 0/0 loss 1")
def test_any_lines_can_be_read(lines):
    for found in [parse_line(lines, PATTERN), *read_lines(lines.replace(" ", "\n"), DEFAULT_PATTERN)]:
        assert found is None or all(isinstance(value, float) for value in found.values())
    for found in read_lines(lines, DEFAULT_PATTERN):
        assert all(math.isfinite(found.get(name, 0.0)) for name in PLACES)


@pytest.mark.parametrize("pattern", [DEFAULT_PATTERN, r"loss (?P<loss>[\d.]+)"])
def test_a_note_of_ours_that_quotes_a_program_is_no_progress(pattern):
    note = "trainyard: run.sh has ended; waiting for what it left running: python train.py step 1 loss 0.5"
    assert read_lines(f"{note}\nstep 2 loss 0.25", pattern)[0]["loss"] == 0.25
