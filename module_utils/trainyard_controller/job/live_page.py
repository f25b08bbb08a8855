# SPDX-License-Identifier: Apache-2.0
"""Rewrite report.html every few seconds while a job is watched; the browser reloads it.

It is the page that the run has at its end, from the same answers that status.yml collects.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...trainyard.job.plan import log_names, spares
from ...trainyard.job.run.lead import leader
from ...trainyard.job.run.wire.answers import of_job
from ..runs.run_folder import NotWrittenError, write_logs
from .reporting import report
from .schedulers.scheduler_clients import Answer, Ask
from .watching import PAGE_S

# How long nodes may take to answer, in seconds.
ANSWER_S = 30.0
# Seconds for which a node that gave no answer is not asked again: each try delays the watch by a connection's time.
SILENT_S = 60.0
# Upper bound for each log that is collected for the page, in bytes.
LOG_BYTES = 1 << 16


class LivePage:
    """A page that follows a run."""

    def __init__(self, plan: Mapping[str, Any], run_dir: Path, ask: Ask) -> None:
        """Take the plan and the folder of the run."""
        self._plan, self._hosts = plan, spares.all_hosts(plan)
        self._shared = {"job_id": plan["job_id"], "job_dir": plan["job_dir"], "stop": False, "log_limit": LOG_BYTES}
        self._run_dir, self._ask = run_dir, ask
        # Nodes without an answer: until when they are not asked again, and why there was none.
        self._silent: dict[str, tuple[float, Answer]] = {}
        self.path = run_dir / "report.html"

    def write(self) -> None:
        """Query all nodes and write the page, unless the job has ended or no head answers."""
        self._silent = {host: each for host, each in self._silent.items() if each[0] > time.monotonic()}
        due = [host for host in self._hosts if host not in self._silent]
        found = {**self._ask("collect", dict.fromkeys(due, self._shared), limit_s=ANSWER_S)} if due else {}
        lost = {host: answer for host, answer in found.items() if "known" not in answer}
        found |= {host: answer for host, (_, answer) in self._silent.items()}
        self._silent |= {host: (time.monotonic() + SILENT_S, answer) for host, answer in lost.items()}
        answers = {host: of_job(self._plan, answer) for host, answer in found.items()}
        cluster = leader.find(self._plan, answers).cluster
        if not cluster or cluster.get("end"):
            return
        # Watching goes on without a page; the report at the end reports a full disk.
        with contextlib.suppress(NotWrittenError):
            for brought in log_names.take_logs(self._plan, answers)[0].values():
                write_logs(self._run_dir, brought, keep=False)
            report(self._run_dir, answers, {}, reload_s=PAGE_S)
