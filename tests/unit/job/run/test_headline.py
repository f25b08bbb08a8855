"""The line of a log that tells why its program failed, in the shortest forms of public reports; names are invented."""

import pytest
from ansible.module_utils.trainyard.job.run.decide.restart_rules import decide, evidence
from ansible.module_utils.trainyard.job.run.logs import causes, failures, headline
from ansible.module_utils.trainyard.report import job_text, log_end
from ansible.module_utils.trainyard_controller.job import reporting
from ansible.module_utils.trainyard_node.job.run.ranks import disk_space
from simulated_job import failed


def trace(error, *frames):
    """A traceback; frames are source lines."""
    lines = [f'  File "/job/train.py", line {n}, in f\n    {source}\n' for n, source in enumerate(frames or ["main()"])]
    return f"Traceback (most recent call last):\n{''.join(lines)}{error}\n"


def after(*parts):
    return f"\n{headline.DIRECT}\n\n".join(parts)


HCCL = "RuntimeError: createHCCLComm:build/x.ts:1479 HCCL function error: HcclGetRootInfo(&id), error code is 11"
EJ = "EJ0003: [PID: 159] Failed to bind the IP port. Reason: The IP address and port have been bound already."
NCCL = "torch.distributed.DistBackendError: NCCL error in: /pytorch/ProcessGroupNCCL.cpp:31, {} (run with NCCL_DEBUG)"
USAGE = (
    NCCL.format("invalid usage")
    + "\nncclInvalidUsage: This usually reflects invalid usage of NCCL library.\nLast error:\n"
)
WARN = "n1:101:140 [0] misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to 192.0.2.7<41021> failed"
LOCKED = (
    "n1:144:180 [0] misc/ibvwrap.cc:278 NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory"
)
WATCHDOG = "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7) ran for 600015 milliseconds"
SHARED = "RuntimeError: DataLoader worker (pid 2214) is killed by signal: Bus error. It is possible that dataloader's "
SHARED += "workers are out of shared memory."
PYTHON_H = "/tmp/x/main.c:4:10: fatal error: Python.h: No such file or directory"  # noqa: S108
PMIX = "[g9:297] pmix_mca: unable to open mca_gds: /c/libmca.so.1: undefined symbol: pmix_gds_base (ignored)"
GLIBC = "ImportError: /lib64/libc.so.6: version `GLIBC_2.32' not found (required by /v/flash_attn_2_cuda.so)"
TRITON = (
    "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 393216, Hardware limit: 232448."
)
KERNEL = "torch.AcceleratorError: CUDA error: no kernel image is available for execution on the device"
BAR = "Steps:   0%|          | 1/800 [00:17<3:57:13, 17.81s/it, step_loss=0.0114]"
BOX = "-" * 74
# The log, the line that tells, whether the job ends at once, and a word of the advice.
CASES = {
    "a library that does not fit": (trace(GLIBC), GLIBC, True, ""),
    "HCCL's code behind its function": (trace(HCCL) + f"[ERROR] DIST call hccl api failed.\n{EJ}", EJ, False, ""),
    "an inner exception": (
        after(trace("RuntimeError: connect() timed out."), trace("a.RendezvousConnectionError: See inner exception.")),
        "RuntimeError: connect() timed out.", False, ""),
    "NCCL's warning": (f"{WARN}\n{trace(NCCL.format('unhandled system error'))}ncclSystemError: x", WARN, False, ""),
    "no interface": (trace(USAGE + "Bootstrap : no socket interface found"), "Bootstrap : no socket interface found",
                     True, "NCCL_SOCKET_IFNAME"),
    "one GPU twice": (trace(USAGE + "Duplicate GPU detected : rank 1"),
                      "Duplicate GPU detected : rank 1", True, "LOCAL_RANK"),
    "locked memory": (f"{LOCKED}\nn1: Test NCCL failure common.cu:1005 'unhandled system error'\n .. n1 pid 3: "
                      "Test failure common.cu:891", LOCKED, False, "ulimit -l"),
    "a watchdog": (f"[E1 a.cpp:6] {WATCHDOG}\nterminate called after\n  what():  x\nException raised from f at a",
                   f"[E1 a.cpp:6] {WATCHDOG}", False, ""),
    "shared memory": (
        f"{BAR}ERROR: a bus error\n" + after(
            trace(SHARED), trace("RuntimeError: DataLoader worker (pid(s) 2) exited unexpectedly")) + BAR,
        SHARED, False, "fewer workers"),
    "a bar before the error": (f"{BAR}ERROR: insufficient shared memory (shm)\n{BAR}",
                               "ERROR: insufficient shared memory (shm)", False, "fewer workers"),
    "an overwritten bar": ("a bar\rtrain.sh: line 3: x: command not found", "train.sh: line 3: x: command not found",
                           True, ""),
    "a compiler behind hydra": (
        f"{PYTHON_H}\ncompilation terminated.\nError executing job with overrides: ['a=1']\n"
        + trace("torch._dynamo.exc.BackendCompilerFailed: Command '['gcc']' returned non-zero exit status 1."),
        PYTHON_H, True, "python3-dev"),
    "orted": (f"bash: line 1: orted: command not found\n{BOX}\nORTE was unable to reliably start one or more daemons.\n"
              f"This usually is caused by:\n\n* not finding the required libraries\n{BOX}",
              "bash: line 1: orted: command not found", True, "same Open MPI"),
    "a library of conda": (f"start\n{PMIX}\n*** An error occurred in MPI_Init_thread\n*** on a NULL communicator",
                           PMIX, True, ""),
    "nvcc": ("./build.sh: line 3: nvcc: command not found",
             "./build.sh: line 3: nvcc: command not found", True, "CUDA"),
    "an extension": ("nvcc fatal   : Unsupported gpu architecture 'compute_120'\n"
                     + trace("RuntimeError: Error building extension 'fused_adam'"),
                     "nvcc fatal   : Unsupported gpu architecture 'compute_120'", True, ""),
    "another GPU": (trace(KERNEL), KERNEL, False, "no code for this model"),
    "a symbol": ("python3: symbol lookup error: /v/a.so: undefined symbol: f",
                 "python3: symbol lookup error: /v/a.so: undefined symbol: f", True, ""),
    "a class of any name": (trace(TRITON), TRITON, False, ""),
    "metadata of a checkpoint": (
        "2026-10-31 03:10:58,120 - t - INFO - "
        + "2026-10-31 03:10:58,120 - t - INFO - [rank0]: ".join(
            f"{trace('a.api.CheckpointException: CheckpointException ranks:dict_keys([0, 1])')}"
            f"{trace('AssertionError', 'assert metadata is not None')}".replace("last):\nT", "last): (RANK 0)\nT")
            .splitlines(keepends=True)),
        "AssertionError (assert metadata is not None)", False, "incomplete"),
    "a fabric manager": (trace("RuntimeError: cudaGetDeviceCount(). Error 802: system not yet initialized"),
                         "RuntimeError: cudaGetDeviceCount(). Error 802: system not yet initialized", False, "fabricm"),
    "clocks": ("srun: error: Unable to create step: Job credential expired\nsrun: error: Check clocks on the nodes",
               "srun: error: Unable to create step: Job credential expired", False, "timedatectl"),
    "open files": (trace("OSError: [Errno 24] Too many open files: '/a'"),
                   "OSError: [Errno 24] Too many open files: '/a'",
                   False, "ulimit -n"),
    "a world size": (trace("AssertionError: batch 100 is not divisible by world size 8"),
                     "AssertionError: batch 100 is not divisible by world size 8", True, ""),
    "hydra's option": ("Could not override 'a.b'.\nKey 'b' is not in struct\n\n"
                       "Set the environment variable HYDRA_FULL_ERROR=1",
                       "Could not override 'a.b'. Key 'b' is not in struct", True, ""),
    "hydra's choices": ("In 'config': Could not find 'model/x'\n\nAvailable options in 'model':\n\ta",
                        "In 'config': Could not find 'model/x' Available options in 'model': a", True, ""),
    "pydantic's fields": (trace("pydantic.ValidationError: 2 validation errors for S") + "a\n  Field required\nb\n",
                          "pydantic.ValidationError: 2 validation errors for S a Field required b", False, ""),
    "MindSpore's role": (trace("RuntimeError: Role name '' is invalid. Maybe you call init() without mpirun"),
                         "RuntimeError: Role name '' is invalid. Maybe you call init() without mpirun", True, "msrun"),
    "Ray's task": (trace("ray.exceptions.RayTaskError(ValueError): ray::f() (pid=8)") + '  File "/t.py", line 9, in f\n'
                   "ValueError: batch 100", "ValueError: batch 100", False, ""),
    "TensorFlow's graph": (
        trace("tensorflow.errors_impl.InvalidArgumentError: Graph execution error:")
        + "\nDetected at node a/b defined at:\n  File \"/t.py\", line 3\n\nReceived a label value of 10",
        "tensorflow.errors_impl.InvalidArgumentError: Graph execution error: Received a label value of 10", False, ""),
    "another program": (f"ERROR on proc 0: Unknown pair style (force.cpp:275)\nLast command: pair_style a\n{BOX}\n"
                        f"MPI_ABORT was invoked on rank 0\nwith errorcode 1.\n{BOX}",
                        "ERROR on proc 0: Unknown pair style (force.cpp:275)",
                        False, ""),
    "Go": ("panic: index out of range [5]\n\ngoroutine 1 [running]:\nmain.main()\nexit status 2",
           "panic: index out of range [5]", False, ""),
    "an assertion of C++": ("a.cpp:33: f(): Assertion `n > 0' failed.\nFatal Python error: Aborted\n\n"
                            "Thread 0x7f (most recent call first):\n  File \"/t.py\", line 3 in f",
                            "a.cpp:33: f(): Assertion `n > 0' failed.", False, ""),
    "msrun": ("[ERROR] ME(1:2,M):2026-11-20-16:38:21.473.000 [mindspore/p/_api.py:365] "
              "Worker process 94 exit with exception.\n"
              + trace("RuntimeError: The total number of timed out node is 1. worker 1 is the first one timed out")
              + trace("RuntimeError: Distributed job exited with exception. Please check logs"),
              "ERROR: Worker process 94 exit with exception.", False, ""),
    "NCCL's end after the program's own error": (
        trace("ValueError: no picture") + trace(NCCL.format("internal error")), "ValueError: no picture", False, ""),
    "a warning of each start": ("UserWarning: Failed to load image extension: undefined symbol: f\n"
                                + trace("KeyError: 'a'"),
                                "KeyError: 'a'", False, ""),
    "colors": ("\x1b[31mfatal: no data\x1b[0m", "fatal: no data", False, ""),
    "nothing telling": ("loading\nthe end", "", False, ""),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_line_that_tells_the_cause(name, tmp_path):
    log, expected, stops, advice = CASES[name]
    for filler in ("", "".join(f"note {number}\n" for number in range(30))):
        (tmp_path / "log").write_text(filler + log)
        tail = reporting.last_lines(tmp_path / "log")
        assert log_end.error_of_log(tail) == expected[: log_end.MAX_ERROR]
    found = {"lost": "a peer"} if causes.lost_peer(log) else evidence(log)
    assert decide(failed("n1", 0, **found), step="").stop == stops
    node = {"host": "n1", "ranks": [0], "processes": []}
    summary = {"failure": failed("n1", 0, exit_code=1), "nodes": [node], "rank_log": "rank_{rank}.log"}
    first, *more = job_text.cause(summary, "/x", tail)
    assert first.startswith("rank 0 on n1 failed first: exit code 1")
    assert (expected or "its log ends with: the end")[: log_end.MAX_ERROR] in first and advice in " ".join(more)


MISSING = trace("ModuleNotFoundError: No module named 'apex'", "import apex")


@pytest.mark.parametrize("prefix", [
    "[1,0]<stderr>:", "[1,0]<stderr>: ", "[rank0]: ", "[default0]:", "n1: ", "192.0.2.7: ", "0: ", " 0: ",
    "(f pid=811) ", "(f pid=811, ip=192.0.2.1) ", "web-1  | ", "2026-10-31T03:10:58.120Z ", "03:10:58 ",
    "[2026-10-31 03:10:58,120] ", "2026-10-31 03:10:58,120 - tuner - INFO - ", "Oct 31 03:10:58 n1 python[33]: ",
    "2026-10-31 03:10:58.12 | INFO     | a:f:3 - ", "2026-10-31 03:10:58 [default0]:", "n1: [1,0]<stdout>:",
])  # fmt: skip
def test_a_prefix_of_most_lines_is_taken_off(prefix):
    log = "starting\n" + "".join(f"{prefix}{line}" for line in MISSING.splitlines(keepends=True)) + "head: ssh exited\n"
    lines = [line.text for line in headline.plain(log.split("\n"))]
    assert lines == ["starting", *MISSING.splitlines(), "head: ssh exited"]
    assert evidence(log) == evidence(MISSING) and decide(failed("n1", 0, **evidence(log)), step="").stop


def test_lines_of_the_program_itself_stay():
    own = ["loss: 0.5", "loss: 0.4", "step: 3", "ValueError: a", "ValueError: b", "  indented", "10:20 ratio"]
    assert [line.text for line in headline.plain(own)] == own


def test_lines_of_several_ranks_are_told_apart():
    lines = MISSING.splitlines()
    mixed = [
        f"{rank}: {text}" for own in zip(lines, trace("KeyError: 'a'").splitlines()) for rank, text in enumerate(own)
    ]
    assert evidence("\n".join(mixed))["error"] == "ModuleNotFoundError: No module named 'apex'"


@pytest.mark.parametrize(
    ("code", "text"), [(247, "exit code 247 (-9, SIGKILL)"), (137, "exit code 137"), (255, "exit code 255")]
)
def test_an_exit_code_below_zero(code, text):
    assert failures.exit_text({"exit_code": code}) == text
    assert failures.killed_by({"exit_code": code}) == (0 if code == 255 else 9)


def test_the_shared_memory_of_a_gpu_is_no_folder():
    assert disk_space.shared_memory("n1", TRITON) == "" != disk_space.shared_memory("n1", SHARED)


LOST = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [192.0.2.2]:1431"
BOLD = "\x1b[1m"
HUNG = {"kind": "hung", "host": "n1", "after_s": 60, "limit": "job_hang_timeout", "groups": []}
# The failure of rank 0, the log of each rank, and what the cause tells of which rank.
OTHERS = {
    "a peer under a launcher of its own": (failed("n1", 0, lost=LOST, peer="n2"), [LOST, MISSING], "rank 1 on n2"),
    "only another rank prints": (failed("n1", 0), ["", f"{BOLD}ERROR on proc 1: no style"], "rank 1 on n2"),
    "a hang": (HUNG, ["step 3\n", MISSING], "rank 1 on n2"),
    "a hang of the rank with the error": ({**HUNG, "rank": 1}, ["step 3\n", MISSING], "rank 1 on n2"),
    "a hang after an error that was survived": (HUNG, ["step 3\n", f"{MISSING}step 4\n"], ""),
    "no rank tells": (failed("n1", 0), ["", "step 3\n"], ""),
    "a peer that tells nothing": (failed("n1", 0, lost=LOST, peer="rank 1"), [LOST, ""], ""),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_another_rank_tells_the_cause(name, tmp_path):
    found, logs, who = OTHERS[name]
    nodes = [{"host": f"n{rank + 1}", "ranks": [rank], "processes": []} for rank in (0, 1)]
    summary = {"state": "failed", "failure": found, "nodes": nodes, "rank_log": "rank_{rank}.log"}
    (tmp_path / "logs").mkdir()
    for rank, text in enumerate(logs):
        (tmp_path / f"logs/rank_{rank}.log").write_text(text)
    log, tail = reporting._tail(tmp_path, summary)
    assert BOLD not in "".join(tail)
    lines = job_text.cause(summary, "/x", tail, log)
    told = [line for line in lines if line.startswith("the log of rank")]
    assert told == ([f"the log of {who} tells: {logs[1].splitlines()[-1].removeprefix(BOLD)}"] if who else [])
    assert log == ("rank_1.log" if who else log_end.telling_log(summary))
    # The page does not call it the error of rank 0.
    assert not who or log_end.error_of_rank(summary, tail, log) == ""
