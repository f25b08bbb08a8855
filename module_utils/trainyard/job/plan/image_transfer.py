# SPDX-License-Identifier: Apache-2.0
"""Have the nodes of a job bring its image, from the registry or from one of them, and show how far they are."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...base.findings import Finding, counted, host_list
from ..file.job import Job
from ..placement.placement import Node
from ..run.logs.progress import clock
from . import images

Answer = dict[str, Any]
# Asks hosts a question of the agent, with arguments for each; returns the answers by host.
Ask = Callable[..., Mapping[str, Answer]]

# How long the first and any further visit waits, and the shortest interval of lines of progress, in seconds.
BEGIN_S, WAIT_S, SHOW_S = 2.0, 8.0, 8.0
# Messages of container programs, and of the node's own check before the transfer.
_NO_ROOM = re.compile(r"no space left on device|quota exceeded|MiB are needed", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Transfer:
    """How nodes are asked and a line is shown, the job's user, and the registry's login (username, password) or {}."""

    ask: Ask
    show: Callable[[str], None]
    user: str
    auth: Mapping[str, str]


def bring(transfer: Transfer, job: Job, nodes: Sequence[Node], asked: Mapping[str, Any]) -> list[Finding] | None:
    """Bring the image to the nodes that lack it; return findings, or None where all nodes have it already.

    `asked` is what the nodes were asked about the image (images.request).
    """
    by_name = {node.host: node for node in nodes}
    lacking = images.to_pull(job.image, {node.host: {"image": node.image} for node in nodes})
    if not lacking or job.image is None:
        return None
    waiting = {host: by_name[host] for host in lacking}
    source = by_name.get(job.image.copy_from)
    if source is None:
        return _stage(transfer, waiting, asked, "", "")[0]
    identity = str(source.image.get("id") or "")
    if source.host in waiting:
        findings, ids = _stage(transfer, {source.host: waiting.pop(source.host)}, asked, "", "")
        identity = ids.get(source.host, "")
        if findings:
            return findings
    return _stage(transfer, waiting, asked, source.address, identity)[0]


def _stage(
    transfer: Transfer, nodes: Mapping[str, Node], asked: Mapping[str, Any], source: str, identity: str
) -> tuple[list[Finding], dict[str, str]]:
    """Bring the image to these nodes at the same time; return findings, and the ids of those that have it now."""
    request = {**asked, "auth": dict(transfer.auth) or None, "source": source, "identity": identity}
    findings, ids, shown, begin = list[Finding](), dict[str, str](), 0.0, True
    begun = time.monotonic()
    waiting = list(nodes)
    while waiting:
        image = {"image": {**request, "begin": begin}, "user": transfer.user, "wait_s": BEGIN_S if begin else WAIT_S}
        answers = transfer.ask("bring_image", {host: {**image, "fact": dict(nodes[host].image)} for host in waiting})
        for host in waiting:
            why = str(answers[host].get("problem") or answers[host].get("msg") or "")
            findings += [_finding(asked["reference"], host, why)] if why else []
            ids[host] = str(answers[host].get("id") or "")
        waiting, begin = [host for host in waiting if answers[host].get("done") is False], False
        if waiting and time.monotonic() - shown >= SHOW_S:
            shown = time.monotonic()
            transfer.show(f"  {clock(shown - begun)}   {_line(waiting, len(nodes), answers)}")
    return findings, ids


def _line(waiting: Sequence[str], total: int, answers: Mapping[str, Answer]) -> str:
    slowest = waiting[0]
    state = answers[slowest].get("line") or "started"
    done = f"{total - len(waiting)} of {counted(total, 'node')} done"
    return f"image: {done}; not yet {host_list(waiting)}; {slowest}: {state}"


def _finding(reference: str, host: str, why: str) -> Finding:
    if _NO_ROOM.search(why):
        action = "free space there, or set container_runtime_storage to another disk and run site.yml"
    else:
        action = "correct job_image, the way to the registry or its login (job_registry_auth), then launch again"
    return Finding("image", f"{reference} could not be brought: {why}", "the image on every node", action, host=host)
