# SPDX-License-Identifier: Apache-2.0
"""The program that a scheduler starts on the hosts of an allocation.

    python PROGRAM meeting                     print where the hosts meet, and the token of this run
    python PROGRAM node                        run the job's part of this host
    python PROGRAM answer QUESTION SECONDS     answer a question of the agent, with arguments from standard input

PROGRAM is a folder or a zip with the agent, request.json and source.tar.gz (trainyard_controller/agent_code.py).
"""

from __future__ import annotations

import json
import os
import sys

from ..trainyard.slurm.allocation import expand, only_allocated
from .agent import answer
from .job.schedulers import node


def main(argv: list[str]) -> int:
    """Run one subcommand; return its exit status."""
    command, *rest = argv
    if command == "node":
        return node.run()
    if command == "meeting":
        print(node.meeting(expand(os.environ["SLURM_JOB_NODELIST"])))
    else:
        question, limit_s = rest
        found = answer(question, json.loads(sys.stdin.read()), float(limit_s))
        if "accelerators" in found.get("node", {}):
            found["node"] = only_allocated(found["node"], os.environ)
        print(json.dumps(found))
    return 0
