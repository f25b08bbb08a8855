#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Refuse a Slurm cluster that its jobs would not outlive or its nodes cannot carry; runs once, on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: slurm_change
short_description: Refuse a change of a Slurm cluster that its jobs would not outlive or its nodes cannot carry
description:
  - Fails, with all findings at once, where a cluster that is there has another name or another controller, where a node
    with jobs would leave it, where a C(slurm.conf) is not of this project, and where jobs are to be confined and a node
    cannot.
  - Runs once, on the controller, and changes nothing.
version_added: "0.3.0"
options:
  name:
    description: Name that the cluster is to have.
    type: str
    required: true
  controller:
    description: Host name of the node that is to run slurmctld.
    type: str
    required: true
  nodes:
    description:
      - Each with C(host) and C(conf), its C(slurm.conf) of now, empty where there is none.
      - Where jobs are to be confined also C(cgroups), the lines of C(/proc/self/mounts) at C(/sys/fs/cgroup), of
        C(cgroup.controllers) there, and C(CapEff) of C(/proc/self/status).
    type: list
    elements: dict
    required: true
  states:
    description: Output of C(sinfo --Node --format "%N %T") on the controller; empty where no cluster runs yet.
    type: str
    default: ""
extends_documentation_fragment: read_only
author:
  - trainyard
seealso:
  - module: slurm_cluster
"""

EXAMPLES = r"""
- name: Stop where jobs would end
  slurm_change:
    name: trainyard
    controller: n1
    nodes:
      - {host: n1, conf: "{{ conf.content | b64decode }}"}
    states: "{{ sinfo.stdout }}"
  delegate_to: localhost
  run_once: true
"""

RETURN = r""" # """

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.record.findings import render
from ansible.module_utils.trainyard.slurm.change import judge_change
from ansible.module_utils.trainyard.slurm.confinement import judge_confinement


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "controller": {"type": "str", "required": True},
            "nodes": {"type": "list", "elements": "dict", "required": True},
            "states": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    given = module.params
    findings = judge_change(given["name"], given["controller"], given["nodes"], given["states"])
    findings += judge_confinement([node for node in given["nodes"] if node.get("cgroups") is not None])
    if findings:
        module.fail_json(msg=render(findings, "{count} {findings}: the cluster stays as it is."))
    module.exit_json(changed=False)


if __name__ == "__main__":
    main()
