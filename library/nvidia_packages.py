#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Install packages at exact versions from the right source, and keep them there."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: nvidia_packages
short_description: Install packages at exact versions from one source, and keep them there
description:
  - Finds the versions that O(provider)'s source offers, and has apt simulate the transaction. In check mode, what stops
    it is returned as findings; otherwise it is a failure.
  - Upgrades and downgrades. Installed packages are held and pinned one by one. Holds of others stay.
options:
  packages:
    description: >-
      Each has C(name) and C(version), perhaps without epoch and packaging suffix. Without a version, the installed one
      stays, or the newest is taken.
    type: list
    elements: dict
    required: true
  provider:
    description: Origin of the packages.
    type: str
    choices: [network_repo, distro]
    required: true
  uri:
    description: Address of the repository, for V(network_repo).
    type: str
    default: ""
  origins:
    description: Origins of the distribution's own repositories, for V(distro).
    type: list
    elements: str
    default: [Debian, Ubuntu]
  owner:
    description: Owner of the packages. Earlier packages of the same owner that are not named now are released.
    type: str
    required: true
  state_dir:
    description: Folder of root alone with the records of installed packages.
    type: path
    default: /var/lib/trainyard-root
  remove_unwanted:
    description: Whether packages that are no longer requested are removed, if this module installed them.
    type: bool
    default: false
  may_remove:
    description: Names of further packages, with wildcards, that the transaction may remove.
    type: list
    elements: str
    default: []
  recommends:
    description: Whether recommended packages come along.
    type: bool
    default: false
  refresh:
    description: >-
      Fetch package lists before something is installed, also in check mode. Without it, and while apt has no list of
      the source, RV(pending) is true.
    type: bool
    default: false
attributes:
  check_mode:
    support: full
    description: Simulates the transaction.
extends_documentation_fragment: inventory_name
"""

EXAMPLES = r"""
- name: NCCL at exactly this version
  nvidia_packages:
    host: "{{ inventory_hostname }}"
    owner: nccl
    provider: network_repo
    uri: https://mirror.example.org/cuda/repos/debian12/x86_64
    packages:
      - {name: libnccl2, version: 2.21.5-1+cuda12.4}
      - {name: libnccl-dev, version: 2.21.5-1+cuda12.4}
"""

RETURN = r"""
versions:
  description: The version of each package that it has or will have.
  returned: success
  type: dict
  sample: {libnccl2: 2.21.5-1+cuda12.4}
actions:
  description: Changes, made or planned, one line for each package.
  returned: success
  type: list
  elements: str
due:
  description: Whether something is done or would be; unlike RV(changed) it survives C(changed_when).
  returned: success
  type: bool
installed:
  description: The new packages with their versions (C(packages), the requested ones first), and their C(bytes).
  returned: success
  type: dict
  sample: {packages: [libnccl2 2.21.5-1+cuda12.4], bytes: 193986560}
pending:
  description: Whether nothing could be checked yet, as apt does not know the source.
  returned: success
  type: bool
findings:
  description: All findings, each with host, check, found, expected and action.
  returned: success
  type: list
  elements: dict
"""

from dataclasses import replace
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.base.findings import Finding
from ansible.module_utils.trainyard.software import installed
from ansible.module_utils.trainyard.software.apt import Change, Source, check_transaction, plan, read_transaction
from ansible.module_utils.trainyard_node.software import apt_calls

SOURCE_FILE = "/etc/apt/sources.list.d/trainyard-nvidia.sources"


class Work:
    """The plan for this node and what stops it."""

    def __init__(self, given: dict[str, Any]) -> None:
        """Read the node and plan; raises AptError."""
        self.given = given
        network = given["provider"] == "network_repo"
        self.source = Source(given["uri"] if network else "", tuple(given["origins"]))
        self.keeping = apt_calls.Keeping(
            f"{given['state_dir']}/packages/{given['owner']}.json",
            f"/etc/apt/preferences.d/trainyard-{given['owner'].replace('_', '-')}",
            f"Written by trainyard for the role {given['owner']}.",
        )
        self.record = self.keeping.read()
        self.installed = apt_calls.read_installed()
        self.findings: list[Finding] = []
        self.simulation: list[Change] = []
        lists = self._plan()
        if (self.plan.install or self.plan.findings) and given["refresh"]:
            # With lists of nothing else, what the packages depend on cannot be found.
            others = [name for name in lists if name.endswith(" Packages")]
            only = network and any(not apt_calls.has_source(self.source, {name: lists[name]}) for name in others)
            fault = apt_calls.refresh(SOURCE_FILE, self.source, only)
            if fault:
                self.findings = [fault]
                return
            lists = self._plan()
        self.pending = (
            not apt_calls.has_source(self.source, lists) and not given["refresh"] and bool(self.plan.findings)
        )
        if self.pending:
            return
        self.findings = list(self.plan.findings)
        if self.plan.arguments and not self.findings:
            status, output = apt_calls.simulate(self.plan, given["recommends"])
            checked = check_transaction(self.plan, status, output, self.installed, self.record, given["may_remove"])
            self.findings = list(checked)
            self.simulation = read_transaction(output)

    pending = False

    def _plan(self) -> dict[str, dict[str, str]]:
        given = self.given
        offers, lists = apt_calls.read_offers([package["name"] for package in given["packages"]])
        self.plan = plan(given["packages"], offers, self.installed, self.record, self.source, given["remove_unwanted"])
        return lists

    def files(self) -> dict[str, bytes | None]:
        """Return record and pins as they are to be."""
        return self.keeping.files(self.plan, self.installed)

    def actions(self) -> list[str]:
        """Describe what is to be done."""
        if self.pending:
            names = (f"{one['name']} {one.get('version', '')}".strip() for one in self.given["packages"])
            return [f"{name}: installed from {self.source} once apt knows it" for name in names]
        actions = [
            f"{change.name} {change.new}: " + (f"instead of {change.old}" if change.old else "new")
            if change.new
            else f"{change.name} {change.old}: removed"
            for change in self.simulation
        ]
        actions += [f"{name} {self.plan.versions[name]}: held" for name in self.plan.hold]
        return actions + [f"{name}: released" for name in self.plan.release]


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "str", "required": True},
            "packages": {"type": "list", "elements": "dict", "required": True},
            "provider": {"type": "str", "choices": ["network_repo", "distro"], "required": True},
            "uri": {"type": "str", "default": ""},
            "origins": {"type": "list", "elements": "str", "default": ["Debian", "Ubuntu"]},
            "owner": {"type": "str", "required": True},
            "state_dir": {"type": "path", "default": "/var/lib/trainyard-root"},
            "remove_unwanted": {"type": "bool", "default": False},
            "may_remove": {"type": "list", "elements": "str", "default": []},
            "recommends": {"type": "bool", "default": False},
            "refresh": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    output = ""
    try:
        work = Work(module.params)
        findings = [replace(finding, host=module.params["host"]) for finding in work.findings]
        if findings and not module.check_mode:
            module.fail_json(
                msg=" ".join(f"{finding.check}: {finding.found}; {finding.action}." for finding in findings)
            )
        files = {} if findings or work.pending else work.files()
        changed = bool(work.actions() or apt_calls.differing(files)) and not findings
        if changed and not module.check_mode:
            output = apt_calls.apply(work.plan, module.params["recommends"], files)
    except apt_calls.AptError as error:
        module.fail_json(msg=f"{module.params['host']}: {error}")
    module.exit_json(
        changed=changed,
        due=changed,
        versions=work.plan.versions,
        actions=work.actions(),
        pending=work.pending,
        installed=installed.by_apt(output, list(work.plan.versions)),
        findings=[finding.as_dict() for finding in findings],
    )


if __name__ == "__main__":
    main()
