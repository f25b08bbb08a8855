#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Judge the nccl-tests of all nodes together."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: nccl_tests_verdict
short_description: Judge the nccl-tests of all nodes together
description:
  - Finds nodes without the programs or with those of another build, libraries that are missing, programs without MPI,
    and runs that do not end as they should.
  - Runs on the controller, reads nothing and changes nothing.
version_added: "0.2.0"
options:
  probes:
    description: What M(nccl_tests_probe) returned of each node.
    type: list
    elements: dict
    required: true
extends_documentation_fragment: read_only
author:
  - trainyard
"""

EXAMPLES = r"""
- name: Judge all nodes together
  nccl_tests_verdict:
    probes: "{{ ansible_play_hosts | map('extract', hostvars, ['nccl_tests_probe', 'probe']) }}"
  delegate_to: localhost
  run_once: true
  register: verdict
"""

RETURN = r"""
findings:
  description: All faults, each with host, check, found, expected and action.
  returned: success
  type: list
  elements: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.nvidia.nccl_tests_proof import judge


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={"probes": {"type": "list", "elements": "dict", "required": True}}, supports_check_mode=True
    )
    module.exit_json(changed=False, findings=[finding.as_dict() for finding in judge(module.params["probes"])])


if __name__ == "__main__":
    main()
