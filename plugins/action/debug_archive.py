# SPDX-License-Identifier: Apache-2.0
"""Collect what an issue about a run needs into one archive. Documentation: library/debug_archive.py."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError
from ansible.module_utils.trainyard.base.findings import counted, host_list
from ansible.module_utils.trainyard.base.redaction import is_secret_name
from ansible.module_utils.trainyard.job.file.secret_values import SECRET
from ansible.module_utils.trainyard.report.debug_archive import masks, secret_values
from ansible.module_utils.trainyard_controller.ansible.action_plugin import Documented
from ansible.module_utils.trainyard_controller.job import debug_files
from ansible.module_utils.trainyard_controller.nodes.machine_facts import ask_machines
from ansible.module_utils.trainyard_controller.runs.project import ROOT
from ansible.template import Templar


class ActionModule(Documented):
    def answer(self, given: dict[str, Any]) -> dict[str, Any]:
        chosen = [given[name] for name in ("job_id", "job_name", "verification")]
        run_dir = debug_files.find_run(Path(given["runs_dir"]), *chosen)
        path = debug_files.target(given["file"], given["folder"], run_dir.name)
        nodes, limit_s = self.fan_out(), given["limit_s"]
        run = debug_files.visited(run_dir)
        facts = {host: {} for host in run.hosts} | ask_machines(nodes, run.hosts, given, limit_s)
        # A node that does not answer would be waited for twice.
        own: dict[str, dict[str, Any]] = {host: {} for host in run.hosts if run.job_dir and "facts" in facts[host]}
        shared = {"job_id": run_dir.name, "job_dir": run.job_dir}
        journals = nodes.ask("journal", own, shared, limit_s) if own else {}
        hidden = masks(self._secrets(run.hosts))
        archive = debug_files.pack(run_dir, facts, journals, ROOT, hidden)
        silent = [host for host in run.hosts if "facts" not in facts[host]]
        size = 0 if self._task.check_mode else debug_files.write(path, run_dir.name, archive.files)
        written = f"{path} would be written" if self._task.check_mode else f"{path} ({size / 1024:.0f} KiB)"
        lines = [
            f"Debug archive of {run_dir.name}: {written}",
            f"  holds     {counted(len(archive.files), 'file')}; {counted(archive.hidden, 'value')} hidden (README)",
            *([f"  no answer {host_list(silent)}; its README says why"] if silent else []),
            *(
                [f"  left out  {counted(len(archive.left_out), 'file')}; its README names them"]
                if archive.left_out
                else []
            ),
            "  Look through it before you send it: it names hosts, users and paths, and has the output of the ranks.",
        ]
        self._display.display("\n".join(lines))
        return {"path": str(path), "files": sorted(archive.files), "silent": silent, "hidden": archive.hidden}

    def _secrets(self, hosts: Iterable[str]) -> set[str]:
        """Return the values of secrets that the inventory, -e and the prompts gave."""
        values = {text for text in (self._play_context.password, self._play_context.become_pass) if text}
        values |= _values(self.task_vars, self._templar)
        for host in hosts:
            if host in self.task_vars["hostvars"]:
                raw = self.task_vars["hostvars"].raw_get(host)
                values |= _values(raw, Templar(loader=self._loader, variables=raw))
        return values


def _values(variables: Mapping[str, Any], templar: Any) -> set[str]:
    found = {}
    for name in variables:
        if name in SECRET or is_secret_name(name):
            # What has no value here was given to no job either.
            with contextlib.suppress(AnsibleError):
                found[name] = debug_files.as_plain(templar.template(variables[name]))
    return secret_values(found)
