# SPDX-License-Identifier: Apache-2.0
"""Decide whether a restart can change how an attempt of a job failed.

The node of a rank that failed reads the end of its log (evidence). The head decides, by what the nodes have reported of
this attempt and by the failure of the attempt before it. In doubt the job restarts: a stop ends a run for good, while a
needless restart costs a minute. tests/fixtures/failures has the failures by which the rules are measured.

Some causes return every time, whatever the node (`once`): one failure is enough. Others mostly do: only the same error
at the same place and step in two attempts in a row ends the job. A line that speaks for the node or the network
prevents a stop.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ....base.late_pattern import late_pattern
from ..logs import causes
from ..logs.headline import (
    CODE,
    DIRECT,
    MAX_LINE,
    MODULE,
    NEAR,
    PROGRAM,
    Kind,
    Raised,
    error_text,
    find,
    last_chain,
    plain,
    row_of,
    went_on,
    wraps,
)

Failure = Mapping[str, Any]

# Upper bound for what is read of a log: its end, in characters.
_MAX_LOG = 1 << 16
# Upper bound for the stack in a report, in characters, and for its frames.
_MAX_STACK, _FRAMES = 600, 6
# Characters of the error in a reason.
_SHOWN = 200
# A shell reports death by a signal as 128 and its number.
_BY_SIGNAL = 128


class Decision(NamedTuple):
    """Whether the job ends, and why; the reason continues the words `not started again:`."""

    stop: bool
    reason: str


FILE = Kind("a file of the program is missing", local=True)
MEMORY = Kind("the program needs more memory than there is")
TWICE = Kind("two attempts in a row ended with the same error at the same place")

# Errors of Python by the line that names them; the first match counts.
_ERRORS = (
    (CODE, r"(?:SyntaxError|IndentationError|TabError|NameError|UnboundLocalError)\b"),
    (CODE, r"AttributeError: (?:partially initialized )?module '[^']{1,200}' has no attribute"),
    (
        CODE,
        r"TypeError: .{0,150}(?:got an unexpected keyword argument|missing \d{1,3} required (?:positional|keyword-only)"
        r"|takes (?:from \d{1,3} to )?\d{1,3} positional arguments? but|Can't instantiate abstract class)",
    ),
    (MODULE, r"ModuleNotFoundError\b"),
    (MODULE, r"ImportError: (?:cannot import name|attempted relative import)"),
    (FILE, r"(?:FileNotFoundError|NotADirectoryError|IsADirectoryError|PermissionError)\b"),
    (
        MEMORY,
        r"(?:torch\.(?:cuda\.)?)?OutOfMemoryError\b|MemoryError\b|numpy\.\S{1,60}\._ArrayMemoryError\b"
        r"|(?:RuntimeError|torch\.AcceleratorError): (?:\[enforce fail"
        r"|.{0,60}(?:out of memory|can't allocate memory: you tried))",
    ),
    # Names of errors in a log. One batch of data may raise them, so only the same one at the same place ends the job.
    (
        TWICE,
        r"(?:AssertionError|KeyError|IndexError|ZeroDivisionError|NotImplementedError|RecursionError|AttributeError"
        r"|TypeError|ValueError|UnicodeDecodeError|json\.decoder\.JSONDecodeError: (?!Expecting value: line 1 col)"
        r"|yaml\.\S{1,40}Error|configparser\.\w{1,40}Error|_?pickle\.PicklingError"
        r"|(?:pydantic\S{0,40}\.)?ValidationError|triton\.\S{1,60}\.OutOfResources|(?:\w{1,40}\.){0,6}MisconfigurationException"
        r"|(?:hydra|omegaconf)\.errors\.\w{1,60})\b",
    ),
    # Messages of PyTorch, torch_npu and OneFlow about shapes, types and the use of their functions. Newer releases of
    # PyTorch raise errors of CUDA as AcceleratorError.
    (
        TWICE,
        r"(?:RuntimeError|torch\.AcceleratorError): .{0,120}"
        r"(?:shapes? cannot be multiplied|size mismatch|must match the size"
        r"|Sizes of tensors must match|expected scalar type|the same dtype|to be on the same device"
        r"|Given (?:groups|normalized_shape|transposed)=|is invalid for input of size|index out of range in self"
        r"|in loading state_dict|does not require grad|modified by an inplace operation"
        r"|backward through the graph a second time|finished reduction in the prior iteration|The k-axis of the two"
        r"|device-side assert triggered|Placement is invalid|Check failed: |Failed to import "
        r"|only batches of spatial targets|Expected \d-?D|expected input|are in(?:compatible|consistent))",
    ),
)
_KINDS = tuple((kind, late_pattern(pattern)) for kind, pattern in _ERRORS)
# Words that speak for the node, its devices or disks, the network, or another process. MindSpore's workers print
# `Topology build timed out., retry(3/300)` at every start.
_OUTSIDE = late_pattern(
    r"NCCL WARN|\bnccl\w{3,20}Error|\bDist(?:Backend|Network|Store)?Error\b|\bXid\b|\bECC\b|fallen off the bus"
    r"|CUDA_ERROR_(?!OUT_OF_MEMORY)|[Cc]uda runtime error|CUDA(?: error|_driver)\(\d|CUBLAS_STATUS_|CUDNN_STATUS_"
    r"|CUDA error: (?!out of memory|device-side assert)|unspecified launch failure|\bNVML\b|NVIDIA driver"
    r"|\bE[A-Z]\d{4}: (?!.{0,60}(?:axis|shape|dtype|dim))|\bHCCL\b|\bHccl[A-Z]|runtime result = \d|stream sync"
    r"|[Cc]onnection (?:refused|reset|aborted|closed|error|timed out|unexpectedly)|[Bb]roken pipe"
    r"|\b[Tt]imed out\b(?!\., retry)"
    r"|Time(?:d)?out(?:Error|Expired)|(?:Read|Connect)Timeout|Temporary failure|Name or service not known"
    r"|Network is unreachable|No route to host|Max retries exceeded|HTTP Error \d|\b(?:429|50[0234]) (?:Client|Server)"
    r"|Service Unavailable|Bad Gateway|Remote end closed|couldn't connect|Connection(?:Refused|Reset|Aborted)?Error"
    r"|[Ss]tale (?:NFS )?file handle|Input/output error|Transport endpoint|No space left|[Qq]uota exceeded"
    r"|Read-only file system|Too many open files|Resource temporarily|can't start new thread"
    r"|(?<!Error code 12 \()[Cc]annot allocate memory"
    r"|Communication error|Device or resource busy|No such device|\bErrno (?:5|11|12|16|19|24|28|30|70|101|103|104|107"
    r"|110|111|112|113|116|121|122)\b|[Bb]us error|[Ss]egmentation fault|core dumped|killed by signal"
    r"|(?<!via signal )(?<!closing signal )SIG(?:KILL|TERM)"
    r"|oom[-_ ]?kill|^Killed\b|exited unexpectedly|terminated with signal|PytorchStreamReader|central directory"
    r"|invalid load key|Ran out of input|was truncated|[Uu]nexpected (?:EOF|end of)(?! file$)|EOFError|UnpicklingError"
    r"|HeaderTooLarge|[Cc]hecksum|[Cc]orrupt|KeyboardInterrupt|[Pp]reempt"
)
# A loss that is not a number depends on the order of the data.
_NUMBERS = late_pattern(
    r"\b(?:nan|inf|isnan|isinf|isfinite|non-?finite|not finite|diverge\w*|overflow\w*)\b", re.IGNORECASE
)
# Frames of libraries that talk to others, and names in a source line that hold what came from elsewhere.
_REMOTE_FILE = late_pattern(
    r"/(?:requests|urllib3?|http|asyncio|aiohttp|httpx|httpcore|botocore|boto3|s3fs|fsspec|gcsfs|azure|huggingface_hub"
    r"|wandb|mlflow|grpc|redis|psycopg2?|pymongo|paramiko|torch/hub)[/.]|/(?:socket|ssl|subprocess)\.py$"
    r"|/multiprocessing/(?:connection|managers|queues|shared_memory|heap)\.py$"
)
_REMOTE_SOURCE = late_pattern(
    r"\b(?:response|resp|requests?|urlopen|download\w*\b(?!=False)|socket|sock|recv|reply|https?)\b|\.json\(\)"
    # Not PyTorch's own data loader, whose workers call fetcher.fetch(index).
    r"|(?<!fetcher\.)\bfetch(?:_\w{1,40})?\("
)
# Files that come and go, and calls that write: another rank may have been faster, or not as fast.
_TRANSIENT = late_pattern(r"tmp|temp|cache|/dev/shm|/proc/|\.lock\b|\.pid|\.triton|-> '|checkpoint|ckpt", re.IGNORECASE)
_WRITES = late_pattern(
    r"\b(?:replace|rename|unlink|remove|rmtree|link|chmod|move|save|mkdirs?|makedirs|write\w*)\(|['\"][wax]b?\+?['\"]"
)

_SIZE = late_pattern(r"(?P<number>\d{1,6}(?:\.\d{1,4})?) (?P<unit>bytes|[KMGT]iB)")
_UNITS = {"bytes": 0, "KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40}


def evidence(log: str) -> dict[str, str]:
    """Return what the end of a log says of the failure: `error`, its `stack`, and `doubt`; only those that it has.

    `error` is the line that names what ended the program, `stack` its innermost frames, innermost first. `doubt` is
    what speaks for a cause that a restart can change.
    """
    lines = [line.text for line in plain(log[-_MAX_LOG:].split("\n"))]
    chain = last_chain(lines)
    if chain and went_on(lines[chain[-1].at + 1 :]):
        chain = []
    headline = find(lines, chain)
    errors = [raised for raised in chain if not wraps(raised.error)]
    near = lines[-NEAR:]
    if headline and headline.row and headline.row.kind:
        # Lines of such a cause, and what wraps it, speak for nothing else.
        near = [line for line in near if not (wraps(line) or ((row := row_of(line)) and row.kind))]
    doubt = next((line for line in reversed(near) if _OUTSIDE.search(line) or causes.LOST.search(line)), "")
    found = {"error": headline.text if headline else "", "stack": _stack(chain[-1].frames) if chain else ""}
    if errors:
        deciding, unknown = _deciding(errors)
        found["error"] = error_text(deciding, lines)
        doubt = doubt or unknown or _remote(chain)
    found["doubt"] = doubt
    return {name: text.strip()[: _MAX_STACK if name == "stack" else MAX_LINE] for name, text in found.items() if text}


def kind_of(error: str) -> Kind | None:
    """Return the kind of an error; None for one that a restart may change."""
    row = row_of(error)
    if row and row.kind:
        return row.kind
    if _NUMBERS.search(error) or _OUTSIDE.search(error):
        return None
    return next((kind for kind, pattern in _KINDS if pattern.match(error)), None)


def _deciding(chain: Sequence[Raised]) -> tuple[Raised, str]:
    """Return the error of a chain that decides, and one that leaves the decision open, or "".

    A direct cause decides: the error that wraps it says less. If an error occurred in the handler of another one, the
    one of the two with the weaker kind decides.
    """
    deciding = chain[0]
    for raised in chain[1:]:
        if raised.follows == DIRECT:
            continue
        kind, before = kind_of(raised.error), kind_of(deciding.error)
        if before is not None and (kind is None or before.once or not kind.once):
            deciding = raised
    unknown = "" if kind_of(deciding.error) else deciding.error
    return deciding, unknown


def _stack(frames: Sequence[re.Match[str]]) -> str:
    """Return the innermost frames as one line."""
    shown = []
    for frame in reversed(frames[-_FRAMES:]):
        file = "/".join(frame["file"].split("/")[-2:])
        shown.append(f"{file}:{frame['line']} {frame['name'] or ''}".strip())
    return " < ".join(shown)


def _remote(chain: Sequence[Raised]) -> str:
    """Return what shows that an error came from elsewhere, or from a file that comes and goes; "" if nothing does."""
    for raised in chain:
        for frame in raised.frames:
            if _REMOTE_FILE.search(frame["file"]):
                return f"in {frame['file']}"
        last = raised.sources[-1] if raised.sources else ""
        source = next((line for line in raised.sources if _REMOTE_SOURCE.search(line)), "")
        if source or _NUMBERS.search(last):
            return source or last
        if kind_of(raised.error) is FILE:
            not_written = raised.error.startswith("FileNotFoundError") and _WRITES.search(last)
            if not_written or _TRANSIENT.search(raised.error):
                return raised.error
        if kind_of(raised.error) is MEMORY and _held_by_others(raised.error):
            return raised.error
    return ""


def _held_by_others(error: str) -> bool:
    """Return whether much of a device's memory belonged to other processes when an allocation failed."""
    if re.search(r"\bProcess \d{1,9} has ", error):
        return True

    def size(words: str) -> float | None:
        found = re.search(rf"{_SIZE.pattern} {words}", error) or re.search(
            rf"{words}[^.]{{0,12}} {_SIZE.pattern}", error
        )
        return float(found["number"]) * 2.0 ** _UNITS[found["unit"]] if found else None

    total, free = size("total capacity"), size("free")
    own = max(size("already allocated") or 0, size("reserved in total") or 0)
    if total is None or free is None or not own:
        return False
    return total - free - own > max(2.0 * 2**30, 0.3 * total)


def decide(
    first: Failure,
    found: Iterable[Failure] = (),
    *,
    step: str | None = None,
    earlier: Failure | None = None,
    earlier_step: str | None = None,
    spares: int = 0,
) -> Decision:
    """Return whether the failure to blame, `first`, ends the job. `found` are all failures of the attempt.

    `step` is the last step that the attempt printed: "" before the first one, None if that is not known. `earlier` is
    the failure of the attempt before it, with `earlier_step`. `spares` are left for a restart.
    """
    every = [first, *found]
    outside = next(filter(None, map(_outside, every)), "")
    error = str(first.get("error") or "")
    kind = kind_of(error)
    if outside or kind is None:
        return Decision(
            False, outside or (f"a restart may change it: {error[:_SHOWN]}" if error else "its cause is not known")
        )
    if kind is PROGRAM and first.get("exit_code") not in (1, 2, 126, 127):
        return Decision(False, "the program had started")
    same = [each for each in every if _error(each) == _error(first)]
    again = earlier is not None and _same(first, earlier) and step is not None and step == earlier_step
    hosts = {each.get("host") for each in [*same, *([earlier] if earlier and again else [])]}
    # A file that rank 0 misses at the start was not about to be written by it.
    once = kind.once or (kind is FILE and step == "" and any(each.get("rank") == 0 for each in same))
    if not once and not again:
        return Decision(False, "only the same error at the same place and step, twice in a row, would end the job")
    if spares and len(hosts) < 2 and (kind.local or not once):
        return Decision(False, "a spare may not have this cause")
    return Decision(True, f"{kind.reason} ({error[:_SHOWN]})")


def _outside(failure: Failure) -> str:
    """Return why a failure has a cause that a restart may change, whatever its error; "" if nothing says so."""
    if failure.get("kind") != "exit":
        return "no rank failed by itself"
    if failure.get("lost"):
        return "it had lost a peer"
    if failure.get("full"):
        return "a disk was full"
    number, code = failure.get("signal"), failure.get("exit_code")
    # A library may abort as the interpreter exits after an error of the program.
    if (number and number != signal.SIGABRT) or (not number and (not code or code > _BY_SIGNAL)):
        return "the program did not end by itself"
    return str(failure.get("doubt") or "")


def _error(failure: Failure) -> str:
    """Return a failure's error without what differs from rank to rank: numbers and addresses."""
    return re.sub(r"0x[0-9a-f]+|\d+", "N", str(failure.get("error") or ""))


def _same(one: Failure, other: Failure) -> bool:
    """Return whether two failures have the same error and stack."""
    return bool(one.get("stack")) and one.get("stack") == other.get("stack") and _error(one) == _error(other)
