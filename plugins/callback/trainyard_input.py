# SPDX-License-Identifier: Apache-2.0
"""Check all variables and options of a run before its first play.

The rules are in module_utils/trainyard/inputs/; trainyard_controller/inputs/ applies them to Ansible's objects.
"""

from __future__ import annotations

DOCUMENTATION = r"""
name: trainyard_input
type: aggregate
short_description: Checks all variables and options of a run before its first play
description:
  - Reads C(-e job=FILE), converts texts to the documented types, and sets the cluster's documented defaults below
    everything in the inventory.
  - Ends ansible-playbook with status 2 and all findings for misspelt names and wrong values.
"""

import gc
import traceback
from pathlib import Path
from typing import Any

import ansible.module_utils
from ansible import constants as C
from ansible.plugins.callback import CallbackBase
from ansible.plugins.loader import filter_loader, test_loader

PROJECT = Path(__file__).resolve().parents[2]
# The plugin loader knows the project's module_utils; Python's own import does not yet.
ansible.module_utils.__path__.append(str(PROJECT / "module_utils"))

from ansible.module_utils.trainyard.base.findings import Finding, render
from ansible.module_utils.trainyard.inputs.input_variables import HEADLINE, unchecked
from ansible.module_utils.trainyard.inputs.nothing_to_do import STARTS
from ansible.module_utils.trainyard_controller.ansible import playbook_call
from ansible.module_utils.trainyard_controller.inputs import input_cluster, input_launch, input_options, input_values
from ansible.module_utils.trainyard_controller.inputs.input_run import InputRun


class CallbackModule(CallbackBase):
    """See DOCUMENTATION."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "trainyard_input"
    CALLBACK_NEEDS_ENABLED = False

    def v2_playbook_on_play_start(self, play: Any) -> None:
        """Give each host facts of its own.

        The first facts that a task with run_once sets would be one object of all hosts (set_host_facts in ansible-core
        2.21): each later fact of one host was then that of all.
        """
        manager = play.get_variable_manager()
        for host in manager._inventory.get_hosts():
            manager.set_host_facts(host.name, {})

    def v2_playbook_on_start(self, playbook: Any) -> None:
        """Check all input, and end the run where there are findings."""
        plays = playbook.get_plays()
        if not plays:
            return
        # ansible-playbook does this only after this callback; variables beside the playbook depend on it.
        plays[0].get_loader().set_basedir(playbook._basedir)
        try:
            run = InputRun(plays[0], Path(playbook._file_name).resolve(), PROJECT)
            findings = playbook_call.settings_findings()
            findings = findings or playbook_call.findings(playbook, plays, PROJECT) or check(run)
        except Exception as error:
            # Ansible would print a warning, and run with unchecked input.
            self._display.vvv(traceback.format_exc())
            findings = [unchecked(str(error) or type(error).__name__)]
        if findings:
            self._display.display(render(findings, HEADLINE), color=C.COLOR_ERROR)
            raise SystemExit(2)
        # Each task on each host runs in a child process, which inherits the filters and tests loaded here.
        for plugins in (filter_loader, test_loader):
            next(iter(plugins.all()), None)
        # A garbage collection in a child process would write to, and so copy, all present objects.
        gc.freeze()


def check(run: InputRun) -> list[Finding]:
    """Correct the input of a run where possible, and return the findings about the rest."""
    unread = findings = input_options.read_options(run) + input_options.read_job_file(run)
    input_options.resolve_beside_job_file(run)
    findings = findings + input_values.convert_extra(run) + input_values.convert_inventory(run)
    written = input_cluster.written(run)
    by_default = input_cluster.set_defaults(run, written)
    findings += input_values.undefined(run) + input_cluster.share_with_controller(run, by_default)
    findings += input_cluster.node_names(run) + input_cluster.values(run, written)
    named = {finding.check for finding in findings}
    others = input_values.not_allowed(run) + input_cluster.runs(run) + input_cluster.group_by(run)
    others += input_cluster.topology(run)
    findings += [finding for finding in others if finding.check not in named]
    if not (run.is_of_project and run.playbook.name in STARTS):
        return findings
    if not findings:
        return input_launch.findings(run)
    # The other rules need correct values. A file that cannot be read may set the variables that templates use.
    return findings + ([] if unread else input_launch.undefined(run, findings))
