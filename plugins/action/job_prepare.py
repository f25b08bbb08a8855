# SPDX-License-Identifier: Apache-2.0
"""Ask the nodes of a job, plan it, and check. Documentation: library/job_prepare.py."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError
from ansible.module_utils.trainyard.findings.findings import Finding, failure, render
from ansible.module_utils.trainyard.job.file import secret_values
from ansible.module_utils.trainyard.job.placement import root_ranks
from ansible.module_utils.trainyard.job.plan.plan import warnings_text
from ansible.module_utils.trainyard_controller import planning
from ansible.module_utils.trainyard_controller.action_plugin import OnceForAll
from ansible.module_utils.trainyard_controller.fan_out import FanOut
from ansible.module_utils.trainyard_controller.value_sources import with_places

# Options that are fields of a request as they are.
SAME = ("job", "given", "state_dir", "user", "mpi_prefix", "all_reduce", "venvs", "asked_by", "submit_host")


class ActionModule(OnceForAll):
    def answer(self, given: dict[str, Any]) -> dict[str, Any]:
        record = bool(given.get("record"))
        nodes = self.fan_out()
        request = self._request(given, nodes)
        try:
            prepared = planning.prepare(request, nodes.ask)
        except Exception as error:
            if not record:
                raise
            # Our own error is the answer for one job among others.
            error_found = f"{type(error).__name__}: {error}"
            prepared = planning.Prepared(
                [Finding("job", error_found, "a job", "run it again with -vvv, which shows where")]
            )
        findings = prepared.findings if record else with_places(prepared.findings, self.task_vars)
        run = {"job_id": "", "job_dir": "", "run_dir": "", "settings": {}}
        if not findings:
            plan = prepared.plan
            run = {"job_id": plan["job_id"], "job_dir": plan["job_dir"], "run_dir": str(prepared.run_dir)}
            run["settings"] = plan.get("engine", {}).get("settings", {})
        self._show(prepared, record, bool(findings))
        return {
            **run,
            "refused": [finding.as_dict() for finding in findings],
            "facts_file": given["facts_file"],
            "changed": prepared.run_dir is not None and not record,
            **(failure(findings, prepared.headline) if findings and not record else {}),
            **({"warnings": [prepared.warning]} if prepared.warning else {}),
        }

    def _request(self, given: dict[str, Any], nodes: FanOut) -> planning.Request:
        hosts = [_host(nodes, name) for name in given["hosts"]]
        return planning.Request(
            **{name: given[name] for name in SAME},
            hosts=hosts,
            available=int(given["available"]),
            runs_dir=Path(given["runs_dir"]),
            facts_file=Path(given["facts_file"]),
            limit=str(self.task_vars.get("ansible_limit") or ""),
            check=self._task.check_mode,
            found=[
                *root_ranks.findings(given["user"], bool(self._task.become)),
                *self._secrets(given["job"], hosts),
                *(Finding.from_dict(finding) for finding in given.get("found") or ()),
            ],
            known=given["known_hosts"],
            excluded_file=Path(given["excluded_file"]),
            follow=given.get("follow", ""),
            live=bool(given.get("live")),
            show=self._display.display,
        )

    def _secrets(self, job: Mapping[str, Any], hosts: list[planning.Host]) -> list[Finding]:
        """Find values of job_secret_env in other variables. No option of the task has them."""
        value = self._templar.template(self.task_vars.get("job_secret_env") or {})
        secrets = value if isinstance(value, Mapping) else {}
        found = secret_values.findings(job, self.task_vars, secrets)
        own = {repr(host.env): host for host in hosts if secrets and host.env}
        return found + [
            each.on(host.name)
            for host in own.values()
            for each in secret_values.findings({"job_node_env": host.env}, self.task_vars, secrets)
        ]

    def _show(self, prepared: planning.Prepared, record: bool, refused: bool) -> None:
        texts = ["\n".join(prepared.readmitted)]
        if prepared.left_out:
            texts.append(render(prepared.left_out, planning.WITHOUT))
        if prepared.not_sent and not record:
            texts.append(f"Not sent of job_source: {prepared.not_sent}")
        if not refused:
            # The plan that --check shows ends with its warnings.
            warnings = warnings_text(prepared.plan)
            texts.append(prepared.text if self._task.check_mode else f"{warnings}\n" if warnings else "")
        for text in filter(None, texts):
            self._display.display(text)


def _host(nodes: FanOut, name: str) -> planning.Host:
    try:
        address, env = nodes.values(name, "ansible_host", "job_node_env")
    except AnsibleError as error:
        raise AnsibleError(f"{name}: {error}") from error
    return planning.Host(name, str(address or name), env)
