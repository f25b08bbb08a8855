# SPDX-License-Identifier: Apache-2.0
"""What nccl-tests printed, text or JSON, and our own benchmarks, which print the same text. Parsing alone.

Times in microseconds, bandwidths in GB/s (1e9 bytes), sizes in bytes. Columns are found by the names in the header:
their number and order differ between versions (the sources of 2.0 to 2.19 were read). A log is seldom only the table:
mpirun and srun mark lines, also in the middle of a row, and NCCL's own lines come between the halves of a row.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

COLLECTIVES = (
    "all_gather", "all_reduce", "alltoall", "alltoallv", "broadcast", "gather", "hypercube", "reduce",
    "reduce_scatter", "scatter", "sendrecv",
)  # fmt: skip


@dataclass(frozen=True)
class Measured:
    """One half of a row. None: not printed as a number; wrong is None as well where results were not checked."""

    time_us: float | None
    algbw: float | None
    busbw: float | None
    wrong: int | None


@dataclass(frozen=True)
class Row:
    """One message size; None for a half that was not measured."""

    bytes: int
    out_of_place: Measured | None
    in_place: Measured | None


@dataclass(frozen=True)
class Rank:
    """A rank as the list of devices names it; group is that of NCCL_TESTS_SPLIT."""

    rank: int
    host: str
    group: int = 0
    device: str = ""


@dataclass
class Output:
    """All that was read.

    `tables` counts result tables; `rows` are those of the first. `unchecked_rows` counts rows whose results were not
    checked (-c 0; the footer has OK nevertheless), `broken_rows` those without all their values. `out_of_bounds` and
    `average` are the footer's, None where it is missing; `too_slow` is by NCCL_TESTS_MIN_BW. `wrong_ranks` are from our
    own benchmark, `rank 1 on n2`; `errors` are the program's messages, `nccl_lines` those of NCCL (NCCL_DEBUG),
    `problem` is why nothing could be read. `headless`: it begins in the middle of an output.
    """

    format: str = ""
    version: str = ""
    collective: str = ""
    backend: str = ""
    ranks: list[Rank] = field(default_factory=list)
    tables: int = 0
    rows: list[Row] = field(default_factory=list)
    unchecked_rows: int = 0
    broken_rows: int = 0
    out_of_bounds: int | None = None
    average: float | None = None
    too_slow: bool = False
    wrong_ranks: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    nccl_lines: list[str] = field(default_factory=list)
    problem: str = ""
    headless: bool = False

    @property
    def footer_seen(self) -> bool:
        """Whether both lines of the footer are there."""
        return self.out_of_bounds is not None and self.average is not None


# mpirun --tag-output: [1,0]<stdout>: of Open MPI 4, [prterun-host-12@1,0]<stdout>: of 5, which also adds [host:pid].
_TAG = re.compile(r"\[(?:[\w.@-]*@)?\d+,(?P<rank>\d+)\](?:\[[^\]\n]*\])?<std(?:out|err|diag)>: ?")
# srun --label: `0: `, and ` 0: ` where there are ten tasks or more.
_LABEL = re.compile(r" *(?P<rank>\d+): ?")
# A row that is not ended yet has NCCL's line at its very end, without a space: `sum      -1n1:812:901 [0] NCCL INFO`.
_NCCL = re.compile(
    r"(?:\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?\] )?(?:^[\w.-]{1,255}|[A-Za-z][\w.-]{0,254}):\d{1,10}:\d{1,10} "
    r"(?:\[\d{1,4}\] )?(?:\S{1,255}:\d{1,10} )?NCCL (?:INFO|WARN|TRACE|ABORT|ERROR)\b.*"
)
# The mark of a comment, which is lost where a log went through what takes `#` for a heading.
_MARK = r"(?:#|^)\s*"
_UNMARKED = re.compile(r"\s*(?:Rank|Out of bounds|Avg bus|Collective test|nccl-tests|trainyard|Wrong on|Reducing)\b")
_HEADER = re.compile(rf"{_MARK}(size\s+count\s+type\s.*)$")
_RANK = re.compile(
    rf"{_MARK}Rank\s+(?P<rank>\d+)(?:\s+Group\s+(?P<group>\d+))?\s+Pid\s+\d+\s+on\s+(?P<host>\S+)\s+device\s+(?P<device>\S+)"
)
_ROW = re.compile(r"(?:^|\s)(?P<size>\d+)\s+(?P<count>\d+)\s+(?P<type>(?!nan|inf)[a-z]\w*)(?=\s)(?P<rest>.*)$")
# One of these is among the first lines of every version's output, and before the list of ranks.
_FIRST = r"[^\S\n]*(?:Collective test starting:|nThread \d|Using devices|trainyard collectives:)"
_BEGIN, _UNMARKED_BEGIN = re.compile(f"#{_FIRST}"), re.compile(f"^{_FIRST}", re.M)
_COMMENTS = {
    "bounds": re.compile(rf"{_MARK}Out of bounds values\s*:\s*(\d+)\s+(OK|FAILED)"),
    "average": re.compile(rf"{_MARK}Avg bus bandwidth\s*:\s*(\S+)(?:\s+(OK|FAILED))?"),
    "own": re.compile(rf"{_MARK}trainyard collectives:\s*(\w+) over (\w+)"),
    "starting": re.compile(rf"{_MARK}Collective test starting:\s*(\S+)"),
    "version": re.compile(rf"{_MARK}nccl-tests version (\S+)"),
    "wrong": re.compile(rf"{_MARK}Wrong on (rank \d+ on \S+): \d+ elements"),
    "error": re.compile(r"#\s+error:\s*(.+)$"),
    "reduced": re.compile(rf"{_MARK}(Reducing maxBytes to \d+ due to memory limitation)"),
}
_FAILURE = re.compile(
    r"([A-Za-z][\w.-]*: Test (?:CUDA|NCCL) failure .*|\.\. [\w.-]+ pid \d+: Test failure .*|Invalid number of GPUs.*)"
)
# Upper bound for a line, in characters: the JSON of a large run without its beginning is one line.
_MAX_LINE = 1 << 14
# Greater numbers are none of a benchmark's, and a process has no more devices.
_MAX_NUMBER, _MAX_DEVICES = 2.0**63, 1024
_PROGRAM = re.compile(rf"(?<![a-z_])({'|'.join(sorted(COLLECTIVES, key=len, reverse=True))})_perf")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*(?:e[+-]?\d+)?|nan|inf)", re.I)
# What in-place results alone leave blank.
_BLANK_HALF = re.compile(r"\s{30,}")


def _half(time: float | None, algbw: float | None, busbw: float | None, wrong: float | None) -> Measured:
    return Measured(time, algbw, busbw, None if wrong is None else int(wrong))


def _number(text: str) -> float | None:
    """Return a finite number; None for N/A, nan and inf."""
    value = float(text) if _NUMBER.fullmatch(text) else math.nan
    return value if math.isfinite(value) else None


def _is_value(text: str) -> bool:
    return text == "N/A" or _NUMBER.fullmatch(text) is not None


def streams(text: str) -> dict[str, str]:
    """Take apart what the ranks printed: by mpirun's or srun's mark, "" is what has none. Marks are removed.

    A mark may stand in the middle of a line, where a rank was interrupted by another one.
    """
    parts: dict[str, list[str]] = {"": []}
    # srun marks also the comments of nccl-tests.
    labels = re.search(r"^ *\d+: ?(?:#| *(?:Rank +\d|size +count))", text, re.M)
    for line in text.splitlines(keepends=True):
        if labels:
            match = _LABEL.match(line)
            key, start = (match["rank"], match.end()) if match else ("", 0)
            parts.setdefault(key, []).append(line[start:])
            continue
        position, key = 0, ""
        for match in _TAG.finditer(line):
            parts.setdefault(key, []).append(line[position : match.start()])
            position, key = match.end(), match["rank"]
        parts.setdefault(key, []).append(line[position:])
    return {key: "".join(chunks) for key, chunks in parts.items()}


def _joined(text: str, nccl_lines: list[str]) -> Iterator[str]:
    """Yield the lines without colours and carriage returns; those of NCCL go into `nccl_lines`."""
    for line in re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines():
        match = _NCCL.search(line)
        if match:
            nccl_lines.append(match[0])
        yield line[: match.start()] if match else line


class _Table:
    """Reads the rows below one header."""

    def __init__(self, header: str) -> None:
        """Take the names of the columns."""
        names = header.split()
        first = next((index for index, name in enumerate(names) if name in ("time", "cputime")), len(names))
        self.meta = names[:first]
        # The time of day is two words that are no numbers.
        self.values = ["#wrong" if name == "wrong" else name for name in names[first:] if name != "timestamp"]
        self.rows: list[Row] = []
        self.broken = 0
        self.unchecked = 0
        self._size = 0
        self._seen: list[str] | None = None
        self._only_in_place = False

    def feed(self, line: str) -> bool:
        """Take a line; tell whether it was a row, or the rest of one."""
        match = _ROW.search(line)
        if match:
            self.flush()
            words = match["rest"].split()
            meta = [name for name in self.meta[3:] if name in ("redop", "root")]
            # Versions before 2.13 have the column redop also for collectives that have no operator, and leave it blank.
            if meta[:1] == ["redop"] and words and _is_value(words[0]):
                meta = meta[1:]
            self._size, self._seen = int(match["size"]), []
            after = re.match(r"\s*\S+" * len(meta), match["rest"])
            gap = match["rest"][after.end() if after else 0 :]
            self._only_in_place = bool(_BLANK_HALF.match(gap)) and bool(gap.strip())
            self._take(words[len(meta) :])
            return True
        if self._seen is None or not line.strip():
            return False
        return self._take(line.split())

    def _take(self, words: Sequence[str]) -> bool:
        seen = self._seen if self._seen is not None else []
        count = len(self.values) // 2 if self._only_in_place else len(self.values)
        taken = 0
        for word in words:
            if len(seen) == count or not _is_value(word):
                break
            seen.append(word)
            taken += 1
        if len(seen) == count:
            self._end(seen)
        return taken > 0

    def _end(self, words: Sequence[str]) -> None:
        half = len(self.values) // 2
        first = None if self._only_in_place else self._measured(words[:half])
        second = self._measured(words if self._only_in_place else words[half:])
        # Some collectives check one half only. Versions before 2.13 print the largest deviation: the footer judges it.
        self.unchecked += all(word == "N/A" for name, word in zip(self.values, words) if name in ("#wrong", "error"))
        self.rows.append(Row(self._size, first, second))
        self._seen = None

    def _measured(self, words: Sequence[str]) -> Measured:
        half = {name: _number(word) for name, word in zip(self.values, words)}
        return _half(half.get("time", half.get("cputime")), half.get("algbw"), half.get("busbw"), half.get("#wrong"))

    def flush(self) -> None:
        """Count a row that never got all its values."""
        if self._seen is not None:
            self.broken += 1
            self._seen = None


def parse_text(text: str) -> Output:
    """Read the text output of nccl-tests or of training/benchmark/collectives.py out of a log."""
    found = Output(format="nccl-tests text")
    # Ranks print into it whatever they like, and patterns take long for a line that has no end.
    text = "\n".join(line[:_MAX_LINE] for line in text.splitlines())
    tables: list[_Table] = []
    parts = streams(text).values()
    strays = sum(_read_stream(stream, found, tables) for stream in parts)
    found.tables = len(tables)
    if tables:
        first = tables[0]
        found.rows, found.broken_rows = first.rows, first.broken
        found.unchecked_rows = first.unchecked
        if "error" in first.values:
            found.format += " (before 2.13)"
    else:
        found.problem = "there is no table of results in it"
    footer = found.out_of_bounds is not None or found.average is not None
    inside = bool(strays or tables or footer or found.ranks or '"average_bus_bandwidth"' in text)
    # Where other comments have their marks, a first line without one is what was left of it.
    begin = _BEGIN if "# " in text else _UNMARKED_BEGIN
    found.headless = inside and not any(map(begin.search, parts))
    if not found.collective:
        # Versions before 2.17 do not say what they measure: a command line in the log may.
        programs = set(_PROGRAM.findall(text))
        found.collective = programs.pop() if len(programs) == 1 else ""
    if not found.backend and (tables or found.ranks):
        found.backend = "nccl"
    return found


def _read_stream(text: str, found: Output, tables: list[_Table]) -> int:
    """Read what one rank printed; return how many rows stand before any header."""
    table: _Table | None = None
    strays = 0
    for line in _joined(text, found.nccl_lines):
        if ("#" in line or _UNMARKED.match(line)) and _comment(line, found):
            continue
        header = _HEADER.search(line)
        if header:
            if table:
                table.flush()
            table = _Table(header[1])
            tables.append(table)
            continue
        if table and table.feed(line) and not _FAILURE.search(line):
            continue
        failure = _FAILURE.search(line)
        if failure:
            found.errors.append(failure[1].strip().removeprefix(".. "))
        strays += table is None and _ROW.search(line) is not None
    if table:
        table.flush()
    return strays


def _comment(line: str, found: Output) -> bool:
    """Read a comment line; tell whether it was one that says something."""
    rank = _RANK.search(line)
    if rank:
        found.ranks.append(Rank(int(rank["rank"]), rank["host"], int(rank["group"] or 0), rank["device"]))
        return True
    matches = {name: match for name, pattern in _COMMENTS.items() if (match := pattern.search(line))}
    for name, match in matches.items():
        if name == "bounds":
            found.out_of_bounds = max(int(match[1]), found.out_of_bounds or 0)
        # What comes after the first footer is another table's, or somebody's notes about it.
        elif name == "average" and found.average is None:
            value = _number(match[1])
            found.average = math.nan if value is None else value
            found.too_slow = match[2] == "FAILED"
        elif name == "own":
            found.collective, found.backend, found.format = match[1], match[2], "trainyard text"
        elif name == "starting":
            program = _PROGRAM.search(match[1])
            found.collective = program[1] if program else found.collective
        elif name == "version":
            found.version = match[1]
        elif name == "wrong":
            found.wrong_ranks.append(match[1])
        elif name in ("error", "reduced"):
            found.notes.append(f"NCCL's last error: {match[1].strip()}" if name == "error" else match[1])
    return bool(matches)


def parse_json(text: str) -> Output:
    """Read what nccl-tests (2.17.3 and newer) write with -J. The environment, which it holds, is left out."""
    found = Output(format="nccl-tests json", backend="nccl")
    try:
        # %lf prints a bandwidth after no time at all as inf, which is no JSON.
        data: Any = json.loads(re.sub(r":(-?inf)\b", r':"\1"', text))
    except (ValueError, RecursionError) as error:
        found.problem = f"its JSON cannot be read ({error}): the program was ended before it closed the file"
        return found
    if not isinstance(data, dict):
        found.problem = "its JSON is not what nccl-tests write"
        return found
    config = _dict(data.get("config"))
    arguments = data.get("args")
    program = _PROGRAM.search(str(arguments[0])) if isinstance(arguments, list) and arguments else None
    found.collective = program[1] if program else ""
    code = data.get("nccl_version")
    found.version = f"NCCL {code // 10000}.{code // 100 % 100}.{code % 100}" if isinstance(code, int) else ""
    # Only the first device of each process is listed.
    each = min(max(1, _json_int(config, "nthreads", 1) * _json_int(config, "ngpus", 1)), _MAX_DEVICES)
    for device in config.get("devices") or []:
        if isinstance(device, dict):
            first, group = _json_int(device, "rank"), _json_int(device, "group")
            host, name = str(device.get("hostname", "")), str(device.get("device", ""))
            found.ranks += [Rank(first + place, host, group, name) for place in range(each)]
    results = data.get("results")
    found.tables = 1 if isinstance(results, list) else 0
    if not found.tables:
        found.problem = "there is no table of results in it"
    for result in results if isinstance(results, list) else []:
        size = _json_number(_dict(result).get("size"))
        halves = [_json_measured(_dict(result).get(name)) for name in ("out_of_place", "in_place")]
        if size is None or halves == [None, None] or "in_place" not in result:
            found.broken_rows += 1
        else:
            found.rows.append(Row(int(size), halves[0], halves[1]))
            found.unchecked_rows += all(half is None or half.wrong is None for half in halves)
    bounds, average = _dict(data.get("out_of_bounds")), _dict(data.get("average_bus_bandwidth"))
    if bounds:
        found.out_of_bounds = _json_int(bounds, "count")
    if average:
        value = _json_number(average.get("bandwidth"))
        found.average = math.nan if value is None else value
        found.too_slow = str(average.get("okay")).lower() == "false"
    errors = data.get("errors")
    found.notes += [f"NCCL's last error: {error}" for error in (errors if isinstance(errors, list) else []) if error]
    return found


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _json_int(values: dict[str, Any], name: str, default: int = 0) -> int:
    return int(_json_number(values.get(name)) or default)


def _json_number(value: Any) -> float | None:
    """Return a number that may stand there as text, `"nan"`; None for what is none."""
    if isinstance(value, str):
        return _number(value)
    if (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and abs(value) < _MAX_NUMBER
        and math.isfinite(value)
    ):
        return value
    return None


def _json_measured(value: Any) -> Measured | None:
    if not isinstance(value, dict):
        return None
    half = {name: _json_number(number) for name, number in value.items()}
    return _half(half.get("time", half.get("cpu_time")), half.get("alg_bw"), half.get("bus_bw"), half.get("nwrong"))


def parse(text: str) -> Output:
    """Read a log or a JSON file, whichever it is."""
    text = text.removeprefix("\ufeff")
    return parse_json(text) if text.lstrip().startswith("{") else parse_text(text)
