# SPDX-License-Identifier: Apache-2.0
"""Ask a scheduler how a job is, to its end or once, and bring its logs. Documentation: library/scheduler_call.py."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.module_utils.trainyard_node.run_folder import write_logs
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

display = Display()
# A host that cannot be asked for so long is given up; the job goes on without a watcher.
GIVE_UP_S = 60.0


def pause(elapsed_s: float) -> float:
    """Seconds between two questions: a scheduler's controller serves everybody, so further apart than for our own."""
    return 3.0 if elapsed_s < 60 else 10.0 if elapsed_s < 1800 else 30.0


class ActionModule(ActionBase):
    """Run the scheduler's module, again and again while the job is not over."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return what the module returned last, without the logs, whose names are `files`."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        del tmp
        arguments = self._task.args
        module, wait, run_dir = arguments["module"], arguments.get("wait", False), arguments.get("run_dir")
        begun = answered = time.monotonic()
        answer: dict[str, Any] = {}
        said, told = "", 0
        while True:
            try:
                answer = self._execute_module(
                    module_name=module, module_args=dict(arguments["arguments"]), task_vars=task_vars
                )
                answered = time.monotonic()
            except AnsibleConnectionFailure:
                if not wait or time.monotonic() - answered > GIVE_UP_S:
                    raise
                self._connection.reset()
                time.sleep(1)
                continue
            if answer.get("failed"):
                break
            # What happened meanwhile is said once.
            if wait:
                for event in answer.get("told", ())[told:]:
                    display.display(f"  {event}")
                told = max(told, len(answer.get("told", ())))
            line = answer.get("line", "")
            # Why a job waits is said when it changes; progress each time.
            if wait and line and (line != said or answer.get("state") == "running"):
                display.display(f"  {line}")
                said = line
            if not wait or answer.get("state") not in ("pending", "running"):
                break
            time.sleep(pause(time.monotonic() - begun))
        logs = answer.pop("logs", {})
        answer["files"] = sorted(logs)
        if run_dir and not self._task.check_mode:
            write_logs(Path(run_dir), logs, bool(arguments.get("keep")))
        return {**result, **answer}
