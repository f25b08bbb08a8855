# SPDX-License-Identifier: Apache-2.0
"""Wait until the devices of a job are free (job_busy_devices: wait)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...trainyard.base.findings import Finding, UnusableError
from ...trainyard.cluster.unreachable import no_answers
from ...trainyard.job.plan import busy_devices
from .schedulers.scheduler_clients import Ask

# The fields of a node plan by which a node finds who holds the devices of the job there.
_KEYS = ("job_id", "job_dir", "host", "devices", "busy_devices")


@dataclass
class DeviceQueue:
    """The wait of one launch, which `stopped` ends; `clock` is in seconds."""

    ask: Ask
    show: Callable[[str], None]
    limit_s: float
    stopped: Callable[[], bool]
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    began: float = -1.0

    def visit(self, plans: Mapping[str, Mapping[str, Any]], starts: bool = False) -> list[Finding]:
        """Return who holds devices of the job, and keep its place in the queue of each node; `starts` claims them."""
        own = {
            host: {"node_plan": {key: plan[key] for key in _KEYS}, "starts": starts}
            for host, plan in plans.items()
            if plan.get("devices")
        }
        answers = self.ask("busy", own) if own else {}
        found = [Finding.from_dict(each) for answer in answers.values() for each in answer.get("findings") or ()]
        return found + no_answers({host: each for host, each in answers.items() if "findings" not in each}, {})

    def wait(self, plans: Mapping[str, Mapping[str, Any]], found: Sequence[Finding]) -> list[Finding]:
        """Wait for devices that are busy by `found`; return nothing when they are free, else who has them at the end.

        Raises UnusableError where the job was stopped meanwhile.
        """
        self.began = self.clock() if self.began < 0 else self.began
        said = None
        while found:
            waited = self.clock() - self.began
            if self.stopped():
                stopped = "was stopped (playbooks/stop.yml) before anything of it was started."
                raise UnusableError(f"The job {stopped}")
            if waited >= self.limit_s:
                return [busy_devices.too_long(self.limit_s), *found]
            if said is None or waited - said >= busy_devices.SAY_S:
                said = waited
                self.show(busy_devices.waiting_text(found, waited, self.limit_s))
            self.sleep(min(busy_devices.VISIT_S, self.limit_s - waited))
            found = self.visit(plans)
        return []
