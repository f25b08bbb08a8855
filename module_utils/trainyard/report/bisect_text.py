# SPDX-License-Identifier: Apache-2.0
"""Write which nodes a job fails on, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..base.adhoc import playbook
from ..base.findings import Finding, counted, host_list, refusal_text
from ..job.drill import bisect
from ..job.drill.bisect import Decision, Run

HEADLINE = "{count} {findings} after %s. No run of the job is left."
_ALIKE, _AGAIN = "a job that runs alike on all its nodes", "a fault that comes again on the same nodes"
# By the end of a search: pass, fail or unknown; what is found, expected, and to do.
_ENDS = {
    bisect.NAMED: ("fail", "the job {kinds} with {hosts} ({failed}), and passes without ({passed})", _ALIKE,
                   "drain {hosts}, leave {them} out of job_hosts, and see what is wrong there: {verify}"),
    bisect.PAIR: ("fail", "the job {kinds} where both {hosts} take part, and passes with either of the two", _ALIKE,
                  "see the way between the two, and what they alone have in common: {verify}"),
    bisect.TOGETHER: ("unknown", "the job {kinds} on {number} nodes at once ({hosts}), and passes on parts of them",
                      "a node with which each run fails", "look for what grows with their number (ports, the way "
                      "between switches), or set bisect_min_nodes to {number} if the fault needs so many"),
    bisect.EVERYWHERE: ("unknown", "the job {kinds} on every part of its nodes", "a part on which it passes",
                        "look at its program, data and software, or set bisect_min_nodes if it needs more nodes"),
    bisect.ALIKE: ("pass", "the job passes on all its nodes, and no part of them is slower than others", _AGAIN,
                   "raise bisect_timeout, or let it begin with the checkpoint after which it failed"),
    bisect.NOT_REPEATED: ("unknown", "the job fails and passes on the same nodes", _AGAIN,
                          "raise bisect_timeout, and do it again"),
    bisect.UNKNOWN: ("unknown", "the runs on {hosts} told nothing: {why}",
                     "runs that start, and print steps where none fails", "correct that, and do it again"),
}  # fmt: skip


def line(number: int, runs: Sequence[Run], order: Sequence[str]) -> str:
    """Return the line about one round."""
    speeds = {run: f" ({run.rate:.3g} steps/s)" for run in runs if run.rate and run.outcome == bisect.PASSED}
    named = {run: host_list(sorted(run.hosts, key=order.index)) for run in runs}
    return f"Round {number}: " + "; ".join(f"on {named[run]} it {run.outcome}{speeds.get(run, '')}" for run in runs)


def finding(
    found: Decision, runs: Sequence[Run], rounds: int, inventory: str, refused: Sequence[Mapping[str, str]]
) -> tuple[str, str, Finding]:
    """Return pass, fail or unknown, the headline, and the finding about a search; `refused` are of its last run."""
    hosts = found.hosts or [host for names in found.runs for host in names]
    known = [run for run in runs if run.outcome != bisect.NOTHING]
    without = [run for run in known if not run.hosts & set(hosts)]
    kinds = [run.outcome for run in known if run.outcome != bisect.PASSED] or [bisect.SLOW]
    why = "they fail where the job as a whole does not, or no steps are read of it (job_progress_pattern)"
    words = {
        "kinds": " or ".join(dict.fromkeys(kinds)),
        "hosts": host_list(hosts, 16),
        "number": len(hosts),
        "them": "it" if len(hosts) == 1 else "them",
        "failed": counted(len(known) - len(without), "run"),
        "passed": counted(sum(run.outcome == bisect.PASSED for run in without), "run"),
        "verify": playbook("playbooks/verify.yml", inventory, limit=",".join([*hosts, "localhost"])),
        "why": refusal_text([Finding.from_dict(each) for each in refused]) if refused else why,
    }
    state, *texts = _ENDS[found.end or bisect.UNKNOWN]
    what, expected, action = (text.format(**words) for text in texts)
    if found.unclear:
        what += f"; failed in one run and passed in another: {host_list(found.unclear)}"
    return state, HEADLINE % counted(rounds, "round"), Finding("bisect", what, expected, action)
