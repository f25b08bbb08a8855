#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ansible module dataset_plan: check a list of data sets and fill in what it leaves open. Read-only."""

from __future__ import annotations

DOCUMENTATION = r"""
module: dataset_plan
short_description: Check a list of data sets before anything is touched
description:
  - Fills in addresses, sums and sizes that the list leaves open, and fails with everything that is wrong with it.
  - Needs no machine; run it on the controller, once for all nodes.
options:
  sets:
    description: The data sets, as the role dataset describes them.
    type: list
    elements: dict
    required: true
extends_documentation_fragment: read_only
author: trainyard
"""

EXAMPLES = r"""
- name: Check the list
  dataset_plan:
    sets:
      - name: digits
      - name: cifar10
        local_file: /srv/cifar-10-binary.tar.gz
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
sets:
  description: The data sets with every key.
  returned: success
  type: list
  elements: dict
findings:
  description: What is wrong, in words.
  returned: failure
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard import datasets


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={"sets": {"type": "list", "elements": "dict", "required": True}}, supports_check_mode=True
    )
    sets, findings = datasets.plan(module.params["sets"])
    if findings:
        module.fail_json(msg=f"dataset_sets cannot be used: {'; '.join(findings)}", findings=findings)
    module.exit_json(changed=False, sets=sets)


if __name__ == "__main__":
    main()
