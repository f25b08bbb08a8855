# SPDX-License-Identifier: Apache-2.0
"""Ask the nodes of a job, plan it, and check, all in this process. Documentation: library/job_prepare.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError
from ansible.module_utils.trainyard.findings.findings import Finding, failure, render
from ansible.module_utils.trainyard.job.placement import root_ranks
from ansible.module_utils.trainyard.job.plan.plan import warnings_text
from ansible.module_utils.trainyard_controller import planning
from ansible.module_utils.trainyard_controller.fan_out import FanOut
from ansible.module_utils.trainyard_controller.value_sources import with_places
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

display = Display()
AGAIN = "run it again with -vvv, which shows where"


class ActionModule(ActionBase):
    """Visit the nodes once, where the cached facts still hold."""

    BYPASS_HOST_LOOP = True
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the run that is ready, or fail with all findings; with `record` return them as `refused`.

        `settings` are those that its scheduler needs, for what tasks do there.
        """
        result: dict[str, Any] = super().run(tmp, task_vars)
        given = self._task.args
        nodes = FanOut(self, task_vars or {})
        request = planning.Request(
            job=given["job"],
            given=given["given"],
            hosts=[self._host(nodes, name) for name in given["hosts"]],
            available=int(given["available"]),
            runs_dir=Path(given["runs_dir"]),
            state_dir=given["state_dir"],
            user=given["user"],
            mpi_prefix=given["mpi_prefix"],
            all_reduce=given["all_reduce"],
            venvs=given["venvs"],
            asked_by=given["asked_by"],
            facts_file=Path(given["facts_file"]),
            limit=str((task_vars or {}).get("ansible_limit") or ""),
            check=self._task.check_mode,
            found=[
                *root_ranks.refused(given["user"], bool(self._task.become)),
                *(Finding.from_dict(finding) for finding in given.get("found") or ()),
            ],
            submit_host=given["submit_host"],
            known=given["known_hosts"],
            excluded_file=Path(given["excluded_file"]),
            follow=given.get("follow", ""),
            live=bool(given.get("live")),
        )

        record = bool(given.get("record"))
        try:
            prepared = planning.prepare(request, nodes.ask)
        except Exception as error:
            if not record:
                raise
            # A fault of ours is one job's answer among others.
            fault = Finding("job", f"{type(error).__name__}: {error}", "a job", AGAIN)
            prepared = planning.Prepared([fault])
        findings = prepared.findings if record else with_places(prepared.findings, task_vars or {})
        refused = [finding.as_dict() for finding in findings]
        run = {"job_id": "", "job_dir": "", "run_dir": "", "settings": {}}
        if not refused:
            plan, run_dir = prepared.plan, str(prepared.run_dir)
            settings = plan.get("engine", {}).get("settings", {})
            run = {"job_id": plan["job_id"], "job_dir": plan["job_dir"], "run_dir": run_dir, "settings": settings}
        result.update(run, refused=refused, facts_file=given["facts_file"])
        result["changed"] = prepared.run_dir is not None and not record
        if refused and not record:
            result.update(failure(findings, prepared.headline))
        if prepared.readmitted:
            display.display("\n".join(prepared.readmitted))
        if prepared.warning:
            result["warnings"] = [prepared.warning]
        if prepared.left_out:
            display.display(render(prepared.left_out, planning.WITHOUT))
        if prepared.not_sent and not record:
            display.display(f"Not sent of job_source: {prepared.not_sent}")
        if not refused:
            # The plan that --check shows ends with its warnings.
            warnings = warnings_text(prepared.plan)
            text = prepared.text if self._task.check_mode else f"{warnings}\n" if warnings else ""
            if text:
                display.display(text)
        return result

    @staticmethod
    def _host(nodes: FanOut, name: str) -> planning.Host:
        try:
            variables = nodes.variables(name)
            address = nodes.template(variables.get("ansible_host") or name, variables)
            return planning.Host(name, str(address), nodes.template(variables.get("job_node_env"), variables))
        except AnsibleError as error:
            raise AnsibleError(f"{name}: {error}") from error
