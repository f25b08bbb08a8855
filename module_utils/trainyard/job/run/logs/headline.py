# SPDX-License-Identifier: Apache-2.0
"""Find the line of a log that tells why its program failed.

One table classes lines as telling or wrapping, with the program that prints them. The headline is the last error of a
traceback that no row calls wrapping, else the first telling line near the end, else what wraps it. Prefixes of
launchers and loggers are taken off first. Sources: the messages of each program, as users reported them.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ....base.late_pattern import late_pattern
from ....base.visible import ESCAPE_SEQUENCE

# Upper bounds: characters of a line; lines before the end, or before a traceback, that may hold a telling line, and
# such a line by which a job ends; lines after an error that ended the program.
MAX_LINE, NEAR, END, AFTER = 300, 100, 40, 60


class Kind(NamedTuple):
    """A kind of error: its reason, and whether one failure is enough.

    A cause that is `local` may lie on one node: if a spare is left, two nodes must have it.
    """

    reason: str
    once: bool = False
    local: bool = False


CODE = Kind("the program's code is wrong", once=True)
MODULE = Kind("a module or library of the program is missing or does not fit", once=True, local=True)
USAGE = Kind("the command line is wrong", once=True)
PROGRAM = Kind("the program cannot be started", once=True, local=True)
SETTING = Kind("a setting does not fit the nodes or the number of ranks", once=True, local=True)


class Row(NamedTuple):
    """Lines of a program: whether they tell the cause, its kind where it returns at every start, and what to do."""

    program: str
    pattern: str
    telling: bool = True
    kind: Kind | None = None
    advice: str = ""


_ORTED = "install the same Open MPI at the same place on every node (role openmpi)"
_MEMLOCK = "the limit of locked memory is too low: set `ulimit -l unlimited` for the user (nodes' limits.conf)"
_SHM = "/dev/shm is too small: fewer workers of the DataLoader, or a larger /dev/shm (of a container: --shm-size)"  # noqa: S108
_CUT = "the checkpoint is incomplete: begin with an older one, and set this one aside"
_GPU_EACH = "give each rank a GPU of its own: torch.cuda.set_device(LOCAL_RANK), or fewer ranks per node"

# Messages of hydra and pydantic that go on in the lines below them.
_OPENS = late_pattern(r"\bCould not override '|^In '[^']{1,200}': Could not find '|\b\d{1,4} validation errors? for \w")
# Lines below such a message that are shown.
_MORE = 3

# What wraps a cause: it repeats that something failed. Rows of the same program stand together.
_WRAPPING = (
    ("hydra", r"^Error executing job with overrides|^Set the environment variable HYDRA_FULL_ERROR"),
    ("torchelastic", r"\bChildFailedError\b|^(?:[=-]{10,}|Failures:|Root Cause \(|\S{1,200} FAILED|\[\d{1,9}\]:)$"
     r"|^  (?:time|host|rank|exitcode|error_file|traceback) {1,12}:|<NO_OTHER_FAILURES>|To enable traceback see"
     r"|failed \(exitcode: -?\d|Sending process \d{1,9} closing signal"),
    ("PyTorch", r"^Exception raised from|^frame #|^C\+\+ CapturedTraceback|DataLoader worker .{0,60}exited unexpectedly"
     r"|See inner exception|^Some NCCL operations have failed|Some NCCL operations have failed or timed out"
     r"|To avoid data inconsistency, we are taking|destroy_process_group\(\) was not called|ProcessRaisedException"
     r"|^-- Process \d{1,9} terminated|BackendCompilerFailed|Error building extension"
     r"|torch\._dynamo\.config|^Set TORCH_LOGS"
     r"|^CheckpointException\b|CheckpointException: CheckpointException ranks"),
    ("C++", r"^terminate called|^\s{0,8}(?:what\(\):|@ +0x)|^Fatal Python error: Aborted|^Aborted\b|\(core dumped\)"),
    ("mpirun", r"^-{20,}$|^\*{3} |MPI_ERRORS_ARE_FATAL|Local abort before MPI_INIT|^Primary job {1,2}terminated"
     r"|a (?:process returned )?non-zero exit code|detected that one or more processes exited|MPI_ABORT was invoked"
     r"|^with errorcode|^NOTE: invoking MPI_ABORT|^You may or may not see output|^exactly when Open MPI kills"
     r"|^ *(?:Process name|Exit code): |unable to reliably start one or more|^This usually is caused by"
     r"|^\* \[\.\.\.\]|^\* not finding|^ {2}(?:one or more nodes|settings, or configure)"),
    ("srun", r"^srun: error: .{1,100}: task.{1,60}: (?:Exited|Terminated|Killed)"
     r"|^srun: (?:Job step aborted|Terminating|launch/)"
     r"|^slurmstepd: error: \*\*\*|Check clocks on the nodes"),
    ("Ascend", r"\bInner [Ee]rror\b|\bcall aclnn\w{1,80} failed|ACL stream synchronize failed"
     r"|HCCL function error|DIST call hccl api failed|\bHCCL error in:|^\s*Trace[Bb]ack \(most recent call last\):$"),
    ("NCCL", r": NCCL error in:|^ncclInvalidUsage\b|^nccl(?:UnhandledCuda|System|Internal|Remote)Error: "
     r"|^Last error:$|Test (?:NCCL )?failure\b|unhandled (?:system|cuda) error"),
    ("DeepSpeed", r"sigkill_handler\]|exits with return code|ssh exited with exit code"),
    ("MindSpore", r"Distributed job exited with exception|kill all other workers|number of timed out node"
     r"|Scheduler process \d{1,9} exit with exception|The node: \d{1,9} is timed out"),
    ("Python", r"\bCalledProcessError\b|\breturned non-zero exit status\b|\b_RemoteTraceback\b|\bRayTaskError\b"
     r"|\bSystemExit\b|resource_tracker: There appear|^\s{1,8}File \"|^(?:Current t|T)hread 0x|^\"\"\"$|^~*\^+~*$"),
    ("TensorFlow", r"errors_impl\.\w{1,40}: Graph execution error:|^Detected at node"),
    ("compilers", r"^compilation terminated|^ *\d{0,6} \| |^ninja: build stopped|^make(?:\[\d\])?: \*\*\*"),
    ("trainyard", r"^trainyard: rank \d|^--- started again|^\d{1,9} lines? of a stack$"),
)  # fmt: skip
_SHELL = (
    r"(?:\S{0,100}sh|\S{1,100}\.sh|\S{0,40}(?:env|nohup|nice|timeout|setsid|stdbuf|taskset|numactl)): "
    r"(?:line \d{1,6}: |\d{1,6}: )?"
)
TABLE: tuple[Row, ...] = (
    # Programs print these at each start, and go on.
    Row("warnings", r"Warning: |\bwarnings\.warn\(|Could not load dynamic library", telling=False),
    # Wrong options (argparse, click, typer, absl, Python, hydra) and programs that a shell does not find.
    *(Row("options", pattern, kind=USAGE) for pattern in (
        r"^[^\s:]{1,200}(?: [\w-]{1,40}){0,3}: error: (?:unrecognized arguments|the following arguments are required"
        r"|argument [^:]{1,100}: (?:invalid|expected|not allowed|ignored explicit)|ambiguous option"
        r"|one of the arguments|too few arguments)",
        r"^(?:Error: |[│|] )(?:No such (?:option|command)|Missing (?:option|argument|parameter|command)"
        r"|Invalid value for|Got unexpected extra argument)",
        r"^(?:FATAL Flags parsing error|.{0,60}Unknown command line flag|[Uu]nknown option:? -)",
        r"^(?:Could not override '|You must specify '[^']{1,80}', e\.g|Ambiguous value for argument '"
        r"|Cannot find primary config '"
        r"|In '[^']{1,200}': Could not find ')",
    )),
    *(Row("shell", pattern, kind=PROGRAM, advice=advice) for pattern, advice in (
        (rf"^{_SHELL}(?:\S{{1,200}}/)?(?:orted|prted): (?:(?:command )?not found|No such file)", _ORTED),
        (rf"^{_SHELL}(?:\S{{1,200}}/)?nvcc: (?:(?:command )?not found|No such file)",
         "install the CUDA toolkit on every node (role cuda_toolkit), or add its bin folder to PATH in job_env"),
        (rf"^{_SHELL}.{{1,200}}: (?:(?:command )?not found|No such file or directory"
         "|Permission denied|cannot execute)", ""),
        (r"^\S{1,200}: can't open file '[^'\n]{1,200}': \[Errno 2\]", ""),
        (r"^\S{0,200}python[\d.]{0,6}: (?:No module named |Error while finding module specification)", ""),
        (r"^trainyard: cannot start '[^'\n]{1,200}': (?:No such file|Permission denied|Exec format)", ""),
        (r"^(?:mpirun|mpiexec|prterun) was unable to (?:find|launch) the specified (?:executable|application)", ""),
    )),
    Row("shell", r"^\S{1,200}: (?:-c: )?line \d{1,6}: (?:syntax error"
        r"|[^\s:]{1,60}: (?:unbound variable|unexpected EOF))", kind=CODE),
    # Libraries that are missing or do not fit.
    Row("loader", r"\bundefined symbol: |symbol lookup error: |\bversion .(?:GLIBC|GLIBCXX|CXXABI)_[\d.]{1,9}'"
        r" not found|cannot open shared object file: No such file", kind=MODULE),
    Row("compilers", r"fatal error: Python\.h: No such file", kind=MODULE,
        advice="install Python's headers on every node (python3-dev, python3-devel)"),
    Row("compilers", r"fatal error: [^\s:]{1,200}: No such file|\bnvcc fatal\b|\bld: cannot find -l", kind=MODULE),
    Row("CUDA", r"no kernel image is available for execution",
        advice="this build has no code for this model of GPU: install one that has"),
    Row("CUDA", r"driver version is insufficient for CUDA|NVIDIA driver on your system is too old",
        advice="the driver is older than the CUDA of this build: update it (playbooks/nvidia_upgrade.yml)"),
    # Settings, sizes, machines.
    Row("NCCL", r"Bootstrap : no socket interface found", kind=SETTING,
        advice="no interface has the name in NCCL_SOCKET_IFNAME: correct it, or leave it out"),
    Row("NCCL", r"Duplicate GPU detected", kind=SETTING, advice=_GPU_EACH),
    Row("NCCL", r"ibv_reg_mr\w{0,9} failed with error Cannot allocate memory", advice=_MEMLOCK),
    Row("NCCL", r"\bNCCL WARN\b|\bCuda failure \S|Got completion from peer|socketProgress: |socketStartConnect: "
        r"|Watchdog caught collective operation timeout"),
    Row("CUDA", r"Error 802\b|system not yet initialized|CUDA_ERROR_SYSTEM_NOT_READY",
        advice="the fabric manager does not run: systemctl status nvidia-fabricmanager (role nvidia_driver)"),
    Row("PyTorch", r"world[_ ]size\b.{0,80}(?:divisible|not equal|must be)|divisible by .{0,30}\bworld[_ ]size",
        kind=SETTING),
    Row("PyTorch", r"insufficient shared memory|out of shared memory", advice=_SHM),
    Row("PyTorch", r"PytorchStreamReader failed|failed finding central directory|\bassert metadata is not None",
        advice=_CUT),
    Row("Ascend", r"\bE[A-Z]\d{4}: (?!Inner [Ee]rror).{10}"),
    Row("system", r"\bDetected \d{1,6} oom[-_]kill|: line \d{1,6}: +\d{1,9} Killed"
        r"|\b(?:Bus error|Segmentation fault)\b"),
    Row("Slurm", r"Job credential expired",
        advice="the clocks of the nodes differ: see `timedatectl` on each of them"),
    Row("MindSpore", r"\bRole name '[^']{0,40}' is invalid", kind=SETTING,
        advice="init() of mindspore.communication needs a launcher that gives roles: "
        "job_launcher: mindspore, msrun or mpirun"),
    Row("MindSpore", r"Worker process \d{1,9} exit with exception"),
    Row("C++", r"Assertion .{1,200} failed\.|\bCheck failed: |^Fatal Python error: (?!Aborted)"),
    Row("system", r"Too many open files",
        advice="the limit of open files is too low: `ulimit -n` shows it; raise it for the user, or use fewer workers"),
    # LAMMPS and others; Go, Rust, Java, Julia, Fortran.
    Row("programs", r"^(?:ERROR on proc \d|(?:FATAL|fatal|Fatal) ?(?:ERROR|error)?: |panic: "
        r"|thread '.{1,60}' panicked at|Exception in thread \".{1,60}\" |ERROR: LoadError: "
        r"|Fortran runtime error: |forrtl: (?:severe|error))"),
    *(Row(program, pattern, telling=False) for program, pattern in _WRAPPING),
)  # fmt: skip


@functools.cache
def _patterns() -> tuple[tuple[Row, re.Pattern[str]], ...]:
    # A rank seldom fails, and expressions take time to compile.
    return tuple((row, late_pattern(row.pattern)) for row in TABLE)


@functools.lru_cache(maxsize=2048)
def row_of(line: str) -> Row | None:
    """Return the first row of the table that a line matches; None without one."""
    return next((row for row, pattern in _patterns() if pattern.search(line[:MAX_LINE])), None)


def advice(line: str) -> str:
    """Return what a user can do about a telling line; "" where the table does not say."""
    row = row_of(line)
    return row.advice if row else ""


# ---- prefixes

# Each atom names who printed the line, or when. The first ones are never part of a program's own line.
_SURE = (
    r"\[\d{1,9},\d{1,9}\]<std(?:out|err)>:|\[(?:rank|default|)\d{1,9}\]:"
    r"|\((?:[^()\n]{0,80} )?pid=\d{1,9}(?:, ip=[\w.:]{1,40})?\)"
)
_TIME = (
    r"\[?(?:\d{4}[-/]\d\d[-/]\d\d[ T_]|[A-Z][a-z]{2} [ \d]\d )?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]?"
    r"(?: (?:- [\w.]{1,60} - [A-Z]{4,8} -|\| [A-Z]{4,8} {0,8}\| [^|\n]{1,100} -|- [A-Z]{4,8} -"
    r"|[\w.-]{1,64} [\w./-]{1,64}(?:\[\d{1,9}\])?:))?"
)
# Not the class of an error, and no name of a figure.
_TAG = (
    r"(?!\w{0,60}(?:[Ee]rror|Exception|ERROR|WARNING|INFO)\b|(?i:step|epoch|loss|iter\w{0,9})\b)"
    r"(?:[\w.@-]{1,64} {0,20}\||[\w.@-]{1,64}:)| {0,5}\d{1,6}:"
)
_ATOM = late_pattern(rf"(?P<sure>{_SURE})|(?P<time>{_TIME})(?= |$)|(?P<tag>{_TAG})(?=\s|$)")
# Up to a bar of tqdm that has no line end of its own.
_BAR = late_pattern(r"^[^\n]{0,200}?\d{1,3}%\|[^|\n]{0,120}\| [^\]\n]{1,200}\](?=\S)")
_DIGITS = late_pattern(r"\d+")


class Line(NamedTuple):
    """A line without prefixes and escape sequences, by its number in the log; `by` names who printed it."""

    text: str
    at: int
    by: str = ""


def plain(lines: Sequence[str]) -> list[Line]:
    """Take off prefixes that most lines share, escape sequences, what a line overwrites, and empty lines.

    If several processes print into one log, the lines of each stand together, those of the first error last.
    """
    found = [Line(ESCAPE_SEQUENCE.sub("", _last(line))[: MAX_LINE + 100], at) for at, line in enumerate(lines)]
    for _ in range(3):
        shorter = _shorter(found)
        if shorter is found:
            break
        found = shorter
    found = [line._replace(text=_BAR.sub("", line.text)[:MAX_LINE].rstrip()) for line in found]
    return _together([line for line in found if line.text.strip()])


def _last(line: str) -> str:
    # as_overwritten puts dots in the place of what a line overwrites.
    return line.removeprefix("\ufeff").rstrip().rpartition("\r")[2].removeprefix("... ")


def _shorter(lines: list[Line]) -> list[Line]:
    """Take off one prefix; return the same list where there is none."""
    matches = [_ATOM.match(line.text) for line in lines]
    kinds = Counter(_shape(match) for match in matches if match)
    filled = sum(bool(line.text.strip()) for line in lines)
    shapes = {shape for shape, count in kinds.items() if shape[0] == "sure" or count > 1}
    for name in ("time", "tag"):
        own = {shape for shape in shapes if shape[0] == name}
        if 2 * sum(kinds[shape] for shape in own) < max(filled, 6):
            shapes -= own
    if not shapes:
        return lines
    taken = [match if match and _shape(match) in shapes else None for match in matches]
    rests = [line.text[match.end() :] for line, match in zip(lines, taken) if match]
    # One blank belongs to the prefix unless most lines begin right after it.
    glued = sum(rest[:1].strip() != "" for rest in rests)
    blank = sum(rest[:1] == " " and rest[1:2].strip() != "" for rest in rests) > glued
    return [
        line._replace(
            text=(rest := line.text[match.end() :])[blank and rest[:1] == " " :],
            by=line.by if match.lastgroup == "time" else f"{line.by}{match[0].strip()}",
        )
        if match
        else line
        for line, match in zip(lines, taken)
    ]


def _shape(match: re.Match[str]) -> tuple[str, str]:
    name = str(match.lastgroup)
    return name, "" if name == "time" else _DIGITS.sub("N", match[0].strip())


def _together(lines: list[Line]) -> list[Line]:
    """Return the lines of each process together, in the places that they have; the first to fail comes last."""
    errors: dict[str, int] = {}
    for line in lines:
        if line.by:
            errors.setdefault(line.by, len(lines))
            if _TRACEBACK.search(line.text):
                errors[line.by] = min(errors[line.by], line.at)
    if len(errors) < 2:
        return lines
    own = iter(sorted((line for line in lines if line.by), key=lambda line: (-errors[line.by], line.by)))
    return [next(own) if line.by else line for line in lines]


# ---- errors

DURING = "During handling of the above exception, another exception occurred:"
DIRECT = "The above exception was the direct cause of the following exception:"
FRAME = late_pattern(r'\s{2,8}File "(?P<file>[^"]{1,250})", line (?P<line>\d{1,9})(?:, in (?P<name>.{1,80}))?')
_TRACEBACK = late_pattern(r"Traceback \(most recent call last\):(?: \(RANK \d{1,9}\))?$")
_IGNORED = late_pattern(r"Exception ignored in|Exception in thread")
_OF_STARTER = late_pattern(r"(?:torch\S{1,80}\.)?ChildFailedError\b|(?:subprocess\.)?CalledProcessError\b|SystemExit\b")
# An error without a traceback: its class, and mostly a message.
_BARE = late_pattern(r"(?:\w{1,60}\.){0,8}\w{0,60}(?:Error|Exception)\b(?::|$)")
# A line that tells of a step, whatever stands before its name.
_PROGRESS = late_pattern(r".{0,80}?\b(?:step|iter(?:ation)?|epoch)\b\W{0,3}\d", re.IGNORECASE)
_REFUSED = ("SyntaxError:", "IndentationError:", "TabError:")


class Raised(NamedTuple):
    """An error with the frames of its traceback, outermost first; `at` is the number of its line."""

    error: str
    frames: Sequence[re.Match[str]] = ()
    sources: Sequence[str] = ()
    at: int = 0
    # How it follows the error before it: DURING, DIRECT, or "".
    follows: str = ""
    begins: int = 0


def went_on(lines: Sequence[str]) -> bool:
    """Return whether a program has survived the error above these lines: it had only logged it."""
    return len(lines) > AFTER or any(map(_PROGRESS.match, lines))


def last_chain(lines: Sequence[str]) -> list[Raised]:
    """Return the errors that led to the last one, in their order; none where no error ended the program."""
    chain: list[Raised] = []
    before: list[Raised] = []
    follows, number = "", 0
    while number < len(lines):
        line = lines[number].strip()
        if line in (DURING, DIRECT):
            follows = line
        elif _TRACEBACK.search(line):
            raised, after = _traceback(lines, number + 1, follows)
            if raised and number and _IGNORED.match(lines[number - 1]):
                # Cython prints it before these words, too.
                if before and chain[-1].at == number - 2 and chain[-1].error == raised.error:
                    chain = before
            elif raised and not _OF_STARTER.match(raised.error):
                # PyTorch's checkpoints print the traceback of each rank below the error that wraps it.
                joined = chain and (follows or (wraps(chain[-1].error) and number - chain[-1].at == 1))
                if joined or not (chain and number - chain[-1].at <= END and wraps(raised.error)):
                    before, chain = chain, [*chain, raised] if joined else [raised]
            follows, number = "", after
        elif line.startswith(_REFUSED):
            # A script that Python refuses has no traceback.
            place = [match for match in map(FRAME.match, lines[max(0, number - 4) : number]) if match]
            chain = [Raised(line, place[-1:], at=number, begins=number)]
        elif _BARE.match(line) and not wraps(line) and not (number and _IGNORED.match(lines[number - 1])):
            if not chain or not chain[-1].frames or number - chain[-1].at > END:
                chain = [Raised(line, at=number, begins=number)]
            elif wraps(chain[-1].error):
                chain = [*chain, Raised(line, at=number, follows=DIRECT, begins=number)]
        number += 1
    return chain


def _traceback(lines: Sequence[str], number: int, follows: str) -> tuple[Raised | None, int]:
    """Return the error below a traceback's header, and the number of its last line."""
    frames, sources, begins = [], [], number - 1
    while number < len(lines) and (lines[number].startswith("  ") or not lines[number].strip()):
        frame = FRAME.match(lines[number])
        if frame:
            frames.append(frame)
        elif lines[number].strip(" ~^"):
            sources.append(lines[number].strip())
        number += 1
    if number >= len(lines) or not (frames or _BARE.match(lines[number].strip())):
        return None, number - (number < len(lines))
    return Raised(lines[number].strip(), frames, sources, number, follows, begins), number


def wraps(line: str) -> bool:
    """Return whether a line only repeats that something failed."""
    row = row_of(line)
    return row is not None and not row.telling


class Found(NamedTuple):
    """What tells why a program failed: the text, the number of its line, and its row of the table, if any."""

    text: str
    at: int
    row: Row | None = None


def find(lines: Sequence[str], chain: Sequence[Raised] | None = None) -> Found | None:
    """Return the headline of the lines of a log without prefixes (`plain`); None where no line tells the cause."""
    chain = last_chain(lines) if chain is None else chain
    error = next((raised for raised in reversed(chain) if not wraps(raised.error)), None)
    error = error or (chain[-1] if chain else None)
    own = Found(error_text(error, lines), error.at, row_of(error.error)) if error else None
    if error and not wraps(error.error) and not went_on(lines[chain[-1].at + 1 :]):
        return own
    begins = chain[0].begins if chain else len(lines)
    first = max(0, begins - NEAR)
    last = max((at for at in range(first, len(lines)) if _PROGRESS.match(lines[at])), default=first - 1)
    for at in range(last + 1, len(lines)):
        row = row_of(lines[at])
        if row and row.telling:
            near = at >= min(begins, len(lines)) - END
            return Found(_completed(lines[at].strip(), lines[at + 1 :]), at, row if near else row._replace(kind=None))
    return own


def error_text(raised: Raised, lines: Sequence[str]) -> str:
    """Return an error in one line: with its source where it has no message, with the lines that complete it."""
    completed = _completed(raised.error, lines[raised.at + 1 :])
    source = raised.sources[-1] if raised.sources and ":" not in raised.error else ""
    return f"{completed} ({source})" if source and not source.startswith("raise ") else completed


def _completed(line: str, below: Sequence[str]) -> str:
    """Return a message with the lines below it that belong to it."""
    if line.endswith(":"):
        more = next((each for each in below[:END] if each[:1].strip() and not wraps(each)), "")
        return f"{line} {more.strip()}".strip()
    if _OPENS.search(line):
        own = itertools.takewhile(lambda each: not (row_of(each) or _TRACEBACK.search(each)), below[:_MORE])
        return " ".join([line, *(each.strip() for each in own)])
    return line


def last_line(lines: Iterable[str]) -> str:
    """Return the last line that wraps nothing, for a log that tells no cause; "" where it has none."""
    return next((line.strip() for line in reversed(list(lines)) if line.strip() and not wraps(line)), "")
