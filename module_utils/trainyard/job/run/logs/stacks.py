# SPDX-License-Identifier: Apache-2.0
"""Group the stacks of a job's ranks, and find the rank that is not where the others are.

In synchronous training one missing rank keeps all others waiting in a collective. A frame is [function, file, line,
owner]: `own` is the training's code, `package` is in site-packages, `python` is the standard library; frames begin at
the innermost. Sources: what `py-spy dump --json` prints (py-spy 0.4), proc(5) for states and wait channels;
torch/distributed/distributed_c10d.py, torch/autograd/graph.py, mindspore/ops/communication.py, mindspore/communication,
oneflow/comm, deepspeed/comm and horovod for names.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ....base.shapes import TIME, Exact, Few, Is, Text, Whole, misfit
from ....base.spans import named_ranks, spans
from ....base.visible import visible
from . import flight_recorder

Frame = list[Any]  # function, file, line (0: it moved meanwhile), owner
Record = Mapping[str, Any]
# The records of each node's ranks.
Found = Mapping[str, Sequence[Record]]

# Upper bounds for the frames of a rank, and for the characters of a name.
MAX_FRAMES, MAX_NAME = 24, 120
# Upper bounds for the ranks of a node whose stacks are taken, for the lines of groups, and for the characters of a line
# in the record of a run.
MAX_RANKS, MAX_LINES, MAX_LINE = 128, 12, 500
# Minimum number of samples of a rank to say how often it waits.
MIN_SAMPLES = 20
_LARGE = 1 << 32
_PARTS = (Text(MAX_NAME), Text(MAX_NAME), Whole(_LARGE), Is(("own", "package", "python")))


def _frame(value: Any) -> None:
    """a frame: function, file, line, owner"""
    if not isinstance(value, list) or len(value) != len(_PARTS) or any(map(misfit, value, _PARTS)):
        raise ValueError("no frame")


def rank_shape(world_size: int) -> Exact:
    """Return the shape of a node's record of one rank.

    `problem` is why there is no Python stack, or ""; `calls` are from PyTorch's flight recorder; `recorder` has them in
    words, or why its dump cannot be read; `ras`, of a node's first rank, is what NCCL's RAS says of the whole job;
    `looks` and `waited` count samples, and those that found the rank waiting.
    """
    texts = {"device": MAX_NAME, "state": 2, "wchan": MAX_NAME, "problem": 400, "recorder": flight_recorder.MAX_TEXT}
    return Exact(
        {
            "rank": Whole(world_size - 1),
            "frames": Few(_frame, MAX_FRAMES),
            "calls": flight_recorder.CALLS,
            "ras": Few(Text(flight_recorder.MAX_TEXT), flight_recorder.MAX_GROUPS),
            **dict.fromkeys(("pid", "cpu_percent", "looks", "waited"), Whole(_LARGE)),
            **{name: Text(most) for name, most in texts.items()},
        }
    )


# The groups in the record of a run: the odd ones first, `more` counts those that are left out.
STACKS = {
    "time": TIME,
    "groups": [
        {"text": str, "odd": bool, "ranks": [int], "hosts": [str], "frames": Few(_frame, MAX_FRAMES), "problem": str}
    ],
    "more": int,
}
_PACKAGES = re.compile(r"^.*/(?:site|dist)-packages/")
_PYTHON = re.compile(r"^(?:.*/lib(?:64)?/python\d[\d.]*/|<frozen )")
# File and function of frames in which a rank waits for others.
_COLLECTIVES = (
    (r"torch/distributed/distributed_c10d\.py", r"(?!_?wrapper$|_<lambda>$).*"),
    (r"torch/distributed/(?:rendezvous|elastic/.*|c10d_.*)\.py", r"(?!wrapper$|_?main$|run$).*"),
    (r"torch/nn/parallel/distributed\.py", r"_sync_.*|_verify_.*|join"),
    (r"mindspore/ops/communication\.py|mindspore/(?:communication|mint/distributed)/.*", r".*"),
    (r"oneflow/comm/.*|oneflow/(?:env|distributed/.*)\.py", r".*"),
    (r"deepspeed/comm/.*|horovod/.*/mpi_ops\.py", r"(?!log_wrapper$).*"),
)
# File, function and name of native code that computes or waits for others: from outside both look alike.
_NATIVE = (
    (r"torch/autograd/graph\.py", r"_engine_run_backward", "backward"),
    (r"torch/cuda/(?:__init__|streams)\.py", r"synchronize", "cuda.synchronize"),
    (r"torch/utils/data/dataloader\.py", r"_next_data", "the data loader"),
    # In `graph` since 2.10 at the latest, in `common` before.
    (r"mindspore/(?:common|graph)/.*", r"asnumpy|_run_graph|run|__call__|_syncruntime|wait_pipeline", "MindSpore"),
    (r"oneflow/(?:framework|autograd)/.*", r"numpy|_numpy|backward|item", "OneFlow"),
)
# Native code of these may wait for other ranks.
_MAY_WAIT = ("backward", "cuda.synchronize", "MindSpore", "OneFlow")
# States of ranks that neither compute nor wait: proc(5), /proc/PID/stat.
_STATES = {"T": "stopped (by SIGSTOP)", "t": "held by a debugger", "Z": "ended", "X": "ended"}


def frame(name: str, filename: str, line: int) -> Frame:
    """Return a frame with a short file name that is the same on all nodes."""
    owner, file = "own", filename.rpartition("/")[2]
    if _PACKAGES.match(filename):
        owner, file = "package", _PACKAGES.sub("", filename)
    elif _PYTHON.match(filename):
        owner = "python"
    return [visible(name)[-MAX_NAME:], visible(file)[-MAX_NAME:], min(max(0, line), _LARGE), owner]


def read_dump(text: str) -> dict[str, list[Frame]]:
    """Return the frames of each thread by name from `py-spy dump --json`, the main thread first as `MainThread`.

    Raises ValueError for other text.
    """
    found: dict[str, list[Frame]] = {}
    try:
        threads = json.loads(text)
        if not isinstance(threads, list):
            raise ValueError("no list of threads")
        # Threads may share a name, even that of the main thread.
        for thread in sorted(threads, key=lambda each: each["os_thread_id"] != each["pid"]):
            main = thread["os_thread_id"] == thread["pid"]
            name = "MainThread" if main else f"{thread['thread_name']} ({thread['os_thread_id']})"
            found[visible(name)[:MAX_NAME]] = [
                frame(str(each["name"]), str(each["filename"]), int(each["line"])) for each in thread["frames"]
            ]
    except (KeyError, TypeError, OverflowError, RecursionError) as error:
        raise ValueError(f"not what py-spy prints: {error!r}") from None
    return found


def common_frames(samples: Sequence[Sequence[Frame]]) -> list[Frame]:
    """Return the common frames of several stacks of one thread, from the outermost frame inwards.

    The last one may be a function at different lines, with line 0.
    """
    common: list[Frame] = []
    for level in zip(*(reversed(sample) for sample in samples)):
        first = level[0]
        if all(each == first for each in level):
            common.append(first)
            continue
        if all(each[:2] == first[:2] for each in level):
            common.append([*first[:2], 0, first[3]])
        break
    return common[::-1][:MAX_FRAMES]


def _function(each: Frame) -> str:
    """Return the name of a frame's function without those around it."""
    return str(each[0]).rpartition(".")[2]


def _is_in(each: Frame, file: str, function: str) -> bool:
    return bool(re.fullmatch(file, each[1]) and re.fullmatch(function, _function(each)))


def _collective(frames: Sequence[Frame]) -> str:
    """Return the collective in which a rank waits by its stack, "" without one."""
    return next((_function(each) for each in frames if any(_is_in(each, *place) for place in _COLLECTIVES)), "")


def _native(frames: Sequence[Frame]) -> str:
    return next((text for *place, text in _NATIVE if any(_is_in(each, *place) for each in frames)), "")


def waits(record: Record) -> bool:
    """Return whether a rank waits in a collective, by its stack."""
    return record["state"] not in _STATES and bool(_collective(record["frames"]))


def _may_wait(frames: Sequence[Frame], state: str) -> bool:
    """Return whether a rank is in native code that may wait for others."""
    return state not in _STATES and _native(frames) in _MAY_WAIT


def waiting(frames: Sequence[Frame], state: str) -> bool:
    """Return whether a rank waits for others in one sample: in a collective, or asleep in native code that may wait."""
    return waits({"frames": frames, "state": state}) or (state == "S" and _may_wait(frames, state))


def _at(each: Frame) -> str:
    name, file, line, _ = each
    return f"{name} ({file.rpartition('/')[2]}{f':{line}' if line else ''})"


def place(record: Record, many: bool = False) -> str:
    """Return where a rank is, or `many` are: `is in load_batch (train.py:88)`."""
    is_, wait = ("are", "wait") if many else ("is", "waits")
    frames: Sequence[Frame] = record["frames"]
    own = next((each for each in frames if each[3] == "own"), None)
    parts = [f"{is_} {_STATES[record['state']]}"] if record["state"] in _STATES else []
    collective = _collective(frames)
    if collective:
        parts.append(f"{wait} in {collective}" + (f", called by {_at(own)}" if own else ""))
    elif frames:
        native = _native(frames)
        inner = own if own and (native or frames[0] is own) else frames[0]
        where = f"{native}, called by {_at(inner)}" if native else _at(inner)
        more = f", called by {_at(own)}" if own and inner is not own else ""
        parts.append(f"{is_} in {where}{more}")
    elif not parts:
        state = {"D": "waits for a device or disk", "R": "computes", "S": "sleeps"}.get(record["state"], "is there")
        where = f" in the kernel's {record['wchan']}" if record["wchan"] not in ("", "0") else ""
        parts.append(f"{'each ' if many else ''}{state}{where}")
    return " and ".join(parts)


def _on_device(record: Record) -> str:
    return f", device {record['device']}," if record["device"] else ""


@dataclass(frozen=True)
class Group:
    """Ranks with equal stacks. `of` has (host, record) in the order of ranks; `odd`: they are not where most are."""

    of: tuple[tuple[str, Record], ...]
    odd: bool

    def text(self) -> str:
        """Return the ranks and their place; an odd rank with its node and device."""
        host, first = self.of[0]
        ranks = [record["rank"] for _, record in self.of]
        if len(ranks) == 1:
            return f"rank {ranks[0]} on {host}{_on_device(first) if self.odd else ''} {place(first)}"
        hosts = list(dict.fromkeys(host for host, _ in self.of))
        where = f" on {', '.join(hosts[:4])}{' ...' if len(hosts) > 4 else ''}" if self.odd else ""
        return f"{len(ranks)} ranks ({spans(ranks)}){where} {place(first, many=True)}"

    def as_dict(self) -> dict[str, Any]:
        """Return the group for the record of a run (RECORD)."""
        first = self.of[0][1]
        return {
            "text": self.text()[:MAX_LINE],
            "odd": self.odd,
            "ranks": [record["rank"] for _, record in self.of],
            "hosts": list(dict.fromkeys(host for host, _ in self.of)),
            "frames": list(first["frames"]),
            "problem": first["problem"],
        }


def _every(found: Found) -> list[tuple[str, Record]]:
    return [(host, record) for host, records in found.items() for record in records]


def groups(found: Found) -> list[Group]:
    """Group ranks by equal stacks. Odd groups come last.

    Ranks in a collective are usual; if all are, or none is, the majority is; all others are odd. If that does not
    decide, ranks that may wait in native code are usual; otherwise no rank is odd.
    """
    by_stack: dict[str, list[tuple[str, Record]]] = {}
    for host, record in _every(found):
        stack = [record["state"] in _STATES, record["frames"] or record["wchan"]]
        by_stack.setdefault(json.dumps(stack), []).append((host, record))
    every = [tuple(sorted(of, key=lambda each: each[1]["rank"])) for of in by_stack.values()]
    stopped = [of for of in every if of[0][1]["state"] in _STATES]
    usual = [of for of in every if waits(of[0][1])]
    if len(usual) in (0, len(every)):
        usual = [of for of in every if 2 * len(of) > len(_every(found)) and of not in stopped]
    if not usual:
        usual = [of for of in every if _may_wait(of[0][1]["frames"], of[0][1]["state"])]
    made = [Group(of, odd=of not in usual if usual else of in stopped) for of in every]
    return sorted(made, key=lambda group: (group.odd, -len(group.of), group.of[0][1]["rank"]))


def recorded(made: Sequence[Group], time_s: float) -> dict[str, Any]:
    """Return groups for the record of a run, the odd ones first; `time_s` is since the epoch."""
    odd_first = sorted(made, key=lambda group: not group.odd)
    return {
        "time": time_s,
        "groups": [group.as_dict() for group in odd_first[:MAX_LINES]],
        "more": max(0, len(made) - MAX_LINES),
    }


def more_text(count: int) -> str:
    """Return how many places of ranks are left out."""
    return f"... {count} more places ..."


def odd_one(made: Sequence[Group]) -> tuple[str, int | None]:
    """Return host and rank of the only odd rank; "" and None if there are several or none."""
    odd = [each for group in made for each in group.of if group.odd]
    hosts = {host for host, _ in odd}
    return (hosts.pop() if len(hosts) == 1 else ""), (odd[0][1]["rank"] if len(odd) == 1 else None)


def left_early(found: Found, well: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the first rank that ended `well` (causes.py) and is not among those found; None where none did."""
    there = {None, *(record["rank"] for _, record in _every(found))}
    return min((each for each in well if each["rank"] not in there), key=lambda each: float(each["time"]), default=None)


def all_wait(found: Found) -> bool:
    """Return whether all ranks wait in a collective, so that the one that left is missing."""
    return any(found.values()) and all(waits(record) for _, record in _every(found))


def left_text(left: Mapping[str, Any], wait: bool) -> str:
    """Return that a rank had ended, how long before if known, and whether the others wait for it."""
    missed = ": the others wait for it" if wait else ""
    before = f"{left['before_s']} s before" if left.get("before_s") is not None else "before"
    return f"rank {left['rank']} on {left['host']} ended {before}, with exit code 0{missed}"


def slow(
    found: Found, deviations: float = 4.0, least: int = MIN_SAMPLES, gap: float = 0.25
) -> tuple[list[tuple[str, Record]], int]:
    """Return the slow ranks, and how often the others wait, in percent of the samples.

    In synchronous training all wait for the slowest rank, which waits for none. A rank is slow if it waits less often
    than the median by the share `gap`, and by more than chance explains (`deviations`), and if at most half of the
    ranks do. Ranks with fewer samples than `least` do not count.
    """
    every = [(host, record) for host, record in _every(found) if record["looks"] >= least]
    if len(every) < 2:
        return [], 0
    shares = sorted(record["waited"] / record["looks"] for _, record in every)
    usual = shares[len(shares) // 2]

    def is_slow(record: Record) -> bool:
        share, looks = record["waited"] / record["looks"], record["looks"]
        both = (share + usual) / 2
        return bool(usual - share > max(gap, deviations * math.sqrt(2 * both * (1 - both) / looks)))

    behind = [each for each in every if is_slow(each[1])]
    return (behind if len(behind) <= len(every) / 2 else []), round(100 * usual)


def slow_lines(found: Found) -> list[str]:
    """Return lines on the slow ranks, none without enough samples."""
    if sum(record["looks"] >= MIN_SAMPLES for _, record in _every(found)) < 2:
        return []
    behind, usual = slow(found)
    lines = [
        f"rank {record['rank']} on {host}{_on_device(record)} is slow: it waited for others in "
        f"{round(100 * record['waited'] / record['looks'])} % of {record['looks']} samples, they wait in {usual} %"
        for host, record in behind[:MAX_LINES]
    ]
    if len(behind) > MAX_LINES:
        lines.append(f"... and {len(behind) - MAX_LINES} more slow ranks")
    return lines or [f"no rank is slower than the others: they wait for each other in {usual} % of the samples"]


def _ranks_by(found: Found, name: str) -> dict[str, list[int]]:
    """Return the ranks by the text that they have in this field, those without one left out."""
    ranks: dict[str, list[int]] = {}
    for _, record in _every(found):
        if record[name]:
            ranks.setdefault(record[name], []).append(record["rank"])
    return ranks


def rank_count(plan: Mapping[str, Any], found: Found) -> int:
    """Return how many ranks a job has; as many as were found, where it may have gone on with fewer nodes."""
    if not plan.get("min_nodes"):
        return int(plan["world_size"])
    return 1 + max((record["rank"] for _, record in _every(found)), default=-1)


def lines(found: Found, world_size: int, silent: Mapping[str, str], left: Mapping[str, Any] | None = None) -> list[str]:
    """Return lines on the places of all ranks; `silent`: nodes without an answer, why; `left`: from left_early()."""
    made = groups(found)
    shown = [group.text() for group in made]
    if len(shown) > MAX_LINES:
        more = more_text(len(shown) - MAX_LINES)
        shown = [*shown[: MAX_LINES // 2], more, *shown[-MAX_LINES // 2 :]]
    ranks = {record["rank"] for _, record in _every(found)}
    pace = slow_lines(found)
    shown += pace
    if left:
        shown.append(left_text(left, all_wait(found)))
    elif len(ranks) > 1 and not any(group.odd for group in made) and not pace:
        shown.append("no rank stands out: what they wait for may be the network between them, or a step that is slow")
    recorders = sorted(_ranks_by(found, "recorder").items(), key=lambda each: -len(each[1]))
    shown += [f"PyTorch's flight recorder, {named_ranks(of)}: {text}" for text, of in recorders[: MAX_LINES // 2]]
    calls = {record["rank"]: record["calls"] for _, record in _every(found)}
    shown += [f"PyTorch's flight recorder: {text}"[:MAX_LINE] for text in flight_recorder.differences(calls)[:3]]
    told = dict.fromkeys(line for _, record in _every(found) for line in record["ras"])
    shown += [f"NCCL's RAS: {line}" for line in [*told][: flight_recorder.MAX_GROUPS]]
    shown += [f"{host} did not report: {why}" for host, why in list(silent.items())[:4]]
    missing = set(range(world_size)) - ranks - ({left["rank"]} if left else set())
    if missing and not silent:
        shown.append(f"no process was found of {named_ranks(missing)}")
    problems = list(_ranks_by(found, "problem").items())
    return [*shown, *(f"no Python stack of {spans(of)}: {why}" for why, of in problems[:3])]


def full_text(record: Record, samples: Sequence[Mapping[str, Sequence[Frame]]], kernel: str) -> str:
    """Return all details of one rank: its state, and the stacks of its threads, each sample that differs."""
    head = (
        f"rank {record['rank']}  pid {record['pid']}  state {record['state']}  in {record['wchan'] or '?'}"
        f"  {record['cpu_percent']} % of a CPU" + (f"  device {record['device']}" if record["device"] else "")
    )
    parts = [head]
    if record["problem"]:
        parts.append(f"  no Python stack: {record['problem']}")
    if record["recorder"]:
        parts.append(f"  PyTorch's flight recorder: {record['recorder']}")
    for number, threads in enumerate(samples):
        for name, frames in threads.items():
            if number and samples[number - 1].get(name) == frames:
                continue
            parts.append(f"  {name}" + (f", sample {number + 1}" if number else ""))
            parts += [f"    {each[0]} ({each[1]}:{each[2]})" for each in frames]
    if kernel:
        parts += ["  kernel", *(f"    {line}" for line in kernel.splitlines()[:30])]
    return "\n".join(parts)
