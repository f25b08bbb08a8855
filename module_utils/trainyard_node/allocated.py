# SPDX-License-Identifier: Apache-2.0
"""The program that a scheduler starts on the hosts of an allocation.

    python PROGRAM meeting                     print where the hosts meet, and the token of this run
    python PROGRAM node                        run the job's part of this host
    python PROGRAM answer QUESTION SECONDS     answer a question of the agent, whose arguments are a line of input

PROGRAM is a zip with the agent, request.json and source.tar.gz (nodes/agent_code.py). The folder of the
job has its code as trainyard.pyz, which has the commands of the runtime, too (job/run/runtime.py). Imports are late, as
each rank starts through it.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def main(argv: list[str]) -> int:
    """Run one subcommand; return its exit status."""
    command, *rest = argv
    if command == "node":
        from . import agent  # noqa: F401 (each fork that answers has it then)
        from .job.schedulers import allocated_node

        return allocated_node.run(_answer)
    if command == "meeting":
        from .job.schedulers.place import meeting

        print(meeting())
    elif command == "answer":
        import json

        question, limit_s = rest
        print(json.dumps(_answer(question, json.loads(sys.stdin.readline()), float(limit_s))))
    else:
        from .job.run import runtime

        return runtime.main(argv)
    return 0


def _answer(question: str, arguments: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
    """Answer a question of the agent in this process."""
    from ..trainyard.slurm.allocation import only_allocated
    from .agent import answer

    found = answer(question, arguments, limit_s)
    if "accelerators" in found.get("node", {}):
        found["node"] = only_allocated(found["node"], os.environ)
    return found
