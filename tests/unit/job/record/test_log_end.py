"""The part of the log that is shown of a rank that failed, and an abort after the training has ended."""

import signal
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.job.run.logs import causes
from ansible.module_utils.trainyard.report import job_text
from ansible.module_utils.trainyard.report.log_end import telling
from test_restart_rules import ended

ERROR = "ValueError: shard 7 has 3 columns, expected 4"
TRACEBACK = ["Traceback (most recent call last):", '  File "/x/train.py", line 41, in <module>', "    main()", ERROR]
# Composed, in the forms that the module's docstring names.
STACKS = {
    "pytorch": [f"frame #{number}: c10d::Reducer::run(int) + 0x{number:x} (0x7f in torch.so)" for number in range(40)],
    "pytorch of a rank": [f"[rank0]: frame #{number}: <unknown function> + 0x10" for number in range(40)],
    "glog": [f"    @     0x7f12ab34cd{number:02x}  oneflow::Actor::Act()" for number in range(20)],
    "open mpi": [f"[n1:4711] [{number:2d}] /lib/x86_64-linux-gnu/libc.so.6(+0x3c050)[0x7f3a]" for number in range(20)],
    "sanitizer": [f"    #{number} 0x55d0a1b2 in main train.cpp:12" for number in range(20)],
    "other threads": [
        "Thread 0x00007ff3c701d6c0 (most recent call first):",
        *(f'  File "/usr/lib/python3.11/threading.py", line {number} in run' for number in range(30)),
        "",
    ],
}
AGAIN = "--- started again, attempt 2 ---"
# Captured from Python 3.11 with libstdc++ of Debian 12, where std::terminate is called as the interpreter exits.
TERMINATED = ["terminate called without an active exception"]
AT_EXIT = [*TERMINATED, "Fatal Python error: Aborted", "", "Current thread 0x7fd453fd0b80 (most recent call first):"]


@pytest.mark.parametrize("stack", STACKS)
def test_a_stack_that_is_printed_last_does_not_hide_the_programs_error(stack):
    shown = telling([*TRACEBACK, *STACKS[stack], "the end"], 15)
    assert ERROR in shown and len(shown) <= 15
    assert shown[-2:] == [f"... {len(STACKS[stack])} lines of a stack", "the end"]


def test_messages_of_cleanup_are_not_put_first():
    others = ["Exception ignored in: <function Pool.__del__>", "AttributeError: 'NoneType' has no attribute 'close'"]
    others.append("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ")
    assert telling([*TRACEBACK, *others, *map(str, range(40))], 15)[0] == ERROR
    assert telling([*others, *map(str, range(40))], 15) == [str(number) for number in range(25, 40)]


def test_the_stack_of_the_thread_that_failed_stays():
    dump = ["Fatal Python error: Segmentation fault", "", "Current thread 0x00007f (most recent call first):"]
    dump += ['  File "train.py", line 4 in step', '  File "train.py", line 9 in <module>']
    assert telling(dump, 15) == dump


def test_mindspores_own_log_does_not_hide_how_a_program_ended():
    fixtures = Path(__file__).resolve().parents[3] / "fixtures/mindspore"
    lines = (fixtures / "succeeded-worker.txt").read_text().splitlines()
    assert "Event base dispatch success!" in lines[-1]
    end = telling(lines, 15, failed=False)
    assert end[-1] == "final test accuracy 96.67 %"
    assert not any(line.startswith("[") for line in end)
    # A failure may follow from a warning.
    lines = (fixtures / "left-worker.txt").read_text().splitlines()
    assert [line for line in lines if line.startswith("[INFO]")]
    end = telling(lines, 15)
    assert "Kill this process with SIGTERM" in end[-1] and not any(line.startswith("[INFO]") for line in end)
    # A program that printed nothing else.
    own = [line for line in lines if line.startswith("[INFO]")]
    assert telling(own, 15, failed=False) == own


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (["step 14/14 loss 0.25", *TERMINATED], "when the program had ended"),
        (["step 14/14 loss 0.25", *AT_EXIT, "  <no Python frame>"], "when the program had ended"),
        ([*TRACEBACK, *TERMINATED], f"after its own error: {ERROR}"),
        (["step 3/14 loss 0.25", *AT_EXIT, '  File "train.py", line 4 in step'], ""),
        (["terminate called after throwing an instance of 'c10::Error'", "  what():  out of memory"], ""),
        (["step 3/14 loss 0.25"], ""),
    ],
)
def test_an_abort_at_the_interpreters_exit(log, said):
    reason = causes.abort("\n".join(log))
    assert (said in reason) if said else reason == ""


@pytest.mark.parametrize("status", [-signal.SIGABRT, 128 + signal.SIGABRT], ids=["its own", "by a shell"])
def test_a_rank_that_aborts_after_its_training_is_named_as_that(tmp_path, status):
    process = {"name": "rank1", "ranks": [1], "log": str(tmp_path / "logs/rank1.log")}
    failure = ended(tmp_path, process, f"step 5/5 loss 0.2\n{TERMINATED[0]}\n", status=status)
    assert failure["reason"].startswith("it aborted as its interpreter exited, when the program had ended")
    node = {"host": "n2", "ranks": [1], "processes": []}
    assert job_text.cause({"nodes": [node], "failure": failure}, "/jobs/x")[1] == failure["reason"]


def test_the_error_of_an_attempt_before_is_not_shown_as_that_of_the_last_one():
    steps = [f"step {number}" for number in range(40)]
    assert telling([*TRACEBACK, AGAIN, *steps], 15) == steps[-15:]
    assert telling([*TRACEBACK, AGAIN, *TRACEBACK[:-1], "KeyError: 'b'", *steps], 15)[0] == "KeyError: 'b'"
    assert telling([*TRACEBACK, AGAIN, "step 1", *TRACEBACK], 15) == ["step 1", *TRACEBACK]
    # An error that is near the end is shown, before the line that divides the attempts.
    assert telling([ERROR, AGAIN, "step 1"], 15) == [ERROR, AGAIN, "step 1"]
