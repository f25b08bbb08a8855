# SPDX-License-Identifier: Apache-2.0
"""Write the record of a run, and show how the job is. Documentation: library/job_report.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.module_utils.trainyard.job.record import excluded_hosts
from ansible.module_utils.trainyard_controller import excluded_record
from ansible.module_utils.trainyard_controller.action_plugin import OnceForAll
from ansible.module_utils.trainyard_controller.reporting import Reported, report


def is_bad(purpose: str, reported: Reported) -> bool:
    """Tell whether the playbook fails: launch and watch unless the job succeeded, stop if something is left.

    status and logs only show the state. A verification records it, and goes on.
    """
    state = reported.summary["state"]
    if purpose == "end":
        return state not in ("succeeded", "running")
    return purpose == "stop" and (bool(reported.left) or state == "lost")


class ActionModule(OnceForAll):
    def answer(self, given: dict[str, Any]) -> dict[str, Any]:
        purpose, excluded_file = given["asked"], Path(given["excluded_file"])
        reported = report(
            Path(given["run_dir"]),
            given.get("answers") or {},
            given.get("not_started") or {},
            by_stop=purpose == "stop",
            check=self._task.check_mode,
            job_state=given.get("job_state"),
            excluded_file=excluded_file,
            notes=given.get("notes") or (),
        )
        result: dict[str, Any] = {"state": reported.summary["state"], "left": reported.left}
        result["changed"] = reported.changed and purpose != "record"
        if is_bad(purpose, reported):
            result.update(failed=True, msg=reported.text)
        elif purpose != "record":
            excluded = excluded_hosts.lines(excluded_record.read(excluded_file)) if purpose == "tell" else []
            self._display.display("\n".join([reported.text, *excluded]))
        return result
