# SPDX-License-Identifier: Apache-2.0
"""Write the record of a run, and say how the job is. Documentation: library/job_report.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.module_utils.trainyard.job.record import excluded_hosts
from ansible.module_utils.trainyard_controller import excluded_record
from ansible.module_utils.trainyard_controller.reporting import Reported, report
from ansible.module_utils.trainyard_controller.run_folder import NotWrittenError
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

display = Display()


def is_bad(asked: str, told: Reported) -> bool:
    """Tell whether the playbook fails: launch and watch with a job that did not succeed, stop with one that is left.

    status and logs only tell; a verification records how it was, and goes on.
    """
    if asked == "end":
        return told.summary["state"] not in ("succeeded", "running")
    return asked == "stop" and (bool(told.left) or told.summary["state"] == "lost")


class ActionModule(ActionBase):
    """All of it in this process: no machine is touched."""

    BYPASS_HOST_LOOP = True
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return `state` and `left`; fail with the text where the job is not as it should be."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        given = self._task.args
        asked, excluded_file = given["asked"], Path(given["excluded_file"])
        try:
            told = report(
                Path(given["run_dir"]),
                given.get("answers") or {},
                given.get("not_started") or {},
                by_stop=asked == "stop",
                check=self._task.check_mode,
                job_state=given.get("job_state"),
                excluded_file=excluded_file,
            )
        except NotWrittenError as error:
            return {**result, **error.failure(Path(given["run_dir"]))}
        result.update(changed=told.changed and asked != "record", state=told.summary["state"], left=told.left)
        if told.warning:
            result["warnings"] = [told.warning]
        if is_bad(asked, told):
            result.update(failed=True, msg=told.text)
        elif asked == "tell":
            display.display("\n".join([told.text, *excluded_hosts.lines(excluded_record.read(excluded_file))]))
        elif asked != "record":
            display.display(told.text)
        return result
