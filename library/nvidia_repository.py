#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Add a source of NVIDIA's packages to apt, and install packages of it at exact versions."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: nvidia_repository
short_description: Configure where apt has NVIDIA's packages from, and install packages at exact versions
description:
  - Each step takes its own options and rejects those of the others. All take O(host) and O(provider).
  - Findings are returned in check mode; otherwise they are failures, and nothing is changed.
options:
  step:
    description:
      - V(add) writes key (O(key), or that of O(key_url)), source (O(uri)) and pin (O(label)) of NVIDIA's repository or
        of a mirror of it, or the source of the distribution's O(components) with NVIDIA's packages, at the mirrors of
        the node, by O(codename) and O(origins). In check mode a new source is tried in a temporary folder, apart from
        the system's own lists. A key with another fingerprint than O(fingerprints), a repository without an answer or
        with a wrong signature, and a second source of the same packages are findings.
      - V(remove) removes what V(add) wrote.
      - V(install) finds the versions of O(packages) that O(uri) or O(origins) offer, and has apt simulate the
        transaction, with O(recommends), O(may_remove) and O(remove_unwanted); with O(refresh), by new lists. It
        upgrades and downgrades. Installed packages are held and pinned one by one for O(owner), with a record in
        O(state_dir). Holds of others stay.
    type: str
    choices: [add, remove, install]
    required: true
  provider:
    description: V(network_repo) for NVIDIA's repository or a mirror, V(distro) for components of the distribution.
    type: str
    choices: [network_repo, distro]
    required: true
  uri: {description: "Address of the repository, the folder with its Release file.", type: str, default: ""}
  origins:
    description: Origins by which the distribution's own repositories are known.
    type: list
    elements: str
    default: [Debian, Ubuntu]
  label: {description: "Label in its Release file, which the pin goes by.", type: str, default: NVIDIA CUDA}
  key_url: {description: "Address of the key, for the node.", type: str, default: ""}
  key:
    description: Content of the key's file in base64, instead of O(key_url).
    type: str
    default: ""
    no_log: false
  fingerprints:
    description: Fingerprints of the keys that the file may hold.
    type: list
    elements: str
    default: []
  codename: {description: Codename of the distribution's release., type: str, default: ""}
  components: {description: Components that have NVIDIA's packages., type: list, elements: str, default: []}
  packages:
    description: >-
      Each has C(name) and C(version), perhaps without epoch and packaging suffix. Without a version, the installed one
      stays, or the newest is taken.
    type: list
    elements: dict
  owner:
    description: Owner of the packages. Earlier packages of the same owner that are not named now are released.
    type: str
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
  recommends: {description: Whether recommended packages come along., type: bool, default: false}
  refresh:
    description: >-
      Fetch package lists before something is installed, also in check mode. Without it, and while apt has no list of
      the source, RV(pending) is true.
    type: bool
    default: false
attributes:
  check_mode:
    support: full
    description: Nothing is changed; a new source is tried in a temporary folder, and a transaction is simulated.
extends_documentation_fragment: inventory_name
"""

EXAMPLES = r"""
- name: See whether the repository can be used
  nvidia_repository:
    step: add
    host: "{{ inventory_hostname }}"
    provider: network_repo
    uri: https://mirror.example.org/cuda/repos/debian12/x86_64
    key_url: https://mirror.example.org/cuda/repos/debian12/x86_64/3bf863cc.pub
    fingerprints: [EB693B3035CD5710E231E123A4B469963BF863CC]
  check_mode: true
  register: source

- name: NCCL at exactly this version
  nvidia_repository:
    step: install
    host: "{{ inventory_hostname }}"
    owner: nccl
    provider: network_repo
    uri: https://mirror.example.org/cuda/repos/debian12/x86_64
    packages:
      - {name: libnccl2, version: 2.21.5-1+cuda12.4}
      - {name: libnccl-dev, version: 2.21.5-1+cuda12.4}

- name: Remove the repository from apt
  nvidia_repository: {step: remove, host: "{{ inventory_hostname }}", provider: network_repo}
"""

RETURN = r"""
files:
  description: Files that are, or in check mode would be, written or removed.
  returned: add and remove
  type: list
  elements: str
versions:
  description: The version of each package that it has or will have.
  returned: install
  type: dict
  sample: {libnccl2: 2.21.5-1+cuda12.4}
actions:
  description: Changes, made or planned, one line for each package.
  returned: install
  type: list
  elements: str
due:
  description: Whether something is done or would be; unlike RV(changed) it survives C(changed_when).
  returned: install
  type: bool
installed:
  description: The new packages with their versions (C(packages), the requested ones first), and their C(bytes).
  returned: install
  type: dict
  sample: {packages: [libnccl2 2.21.5-1+cuda12.4], bytes: 193986560}
pending:
  description: Whether nothing could be checked yet, as apt does not know the source.
  returned: install
  type: bool
findings:
  description: All findings, each with host, check, found, expected and action.
  returned: success
  type: list
  elements: dict
"""

import base64
from dataclasses import replace
from typing import Any

from ansible.module_utils.basic import AnsibleModule, _load_params
from ansible.module_utils.trainyard.base.findings import Finding
from ansible.module_utils.trainyard.software import apt_sources, installed, openpgp
from ansible.module_utils.trainyard.software.apt import Change, Source, check_transaction, plan, read_transaction
from ansible.module_utils.trainyard.software.words import WordError
from ansible.module_utils.trainyard_node.machine.step_options import options_of_step
from ansible.module_utils.trainyard_node.software import apt_calls
from ansible.module_utils.urls import fetch_url

PURPOSE = "Written by trainyard, role nvidia_repository."
NETWORK = "/etc/apt/sources.list.d/trainyard-nvidia.sources"
DISTRO = "/etc/apt/sources.list.d/trainyard-nvidia-distro.sources"
PIN = "/etc/apt/preferences.d/trainyard-nvidia"
KEYS = ("/etc/apt/keyrings/trainyard-nvidia.asc", "/etc/apt/keyrings/trainyard-nvidia.gpg")
TEXT, NO = {"type": "str", "default": ""}, {"type": "bool", "default": False}
TEXTS = {"type": "list", "elements": "str", "default": []}
SHARED = {
    "host": {"type": "str", "required": True},
    "provider": {"type": "str", "choices": ["network_repo", "distro"], "required": True},
}
SOURCE = {**SHARED, "uri": TEXT, "origins": {**TEXTS, "default": ["Debian", "Ubuntu"]}}
STEPS = {
    "add": {
        **SOURCE,
        "label": {"type": "str", "default": "NVIDIA CUDA"},
        "key_url": TEXT,
        "key": {**TEXT, "no_log": False},
        "fingerprints": TEXTS,
        "codename": TEXT,
        "components": TEXTS,
    },
    "remove": SHARED,
    "install": {
        **SOURCE,
        "packages": {"type": "list", "elements": "dict", "required": True},
        "owner": {"type": "str", "required": True},
        "state_dir": {"type": "path", "default": "/var/lib/trainyard-root"},
        "may_remove": TEXTS,
        **dict.fromkeys(("remove_unwanted", "recommends", "refresh"), NO),
    },
}


def bring_key(module: AnsibleModule) -> tuple[bytes, list[Finding]]:
    """Return the key's file and what is wrong with it; one that is there and right is not fetched again."""
    given = module.params
    pinned = [openpgp.normal(fingerprint) for fingerprint in given["fingerprints"]]
    if given["key"]:
        data = base64.b64decode(given["key"])
        return data, apt_calls.check_key(data, pinned, "the given key")
    for path in KEYS:
        data = apt_calls.read_bytes(path) or b""
        if data and not apt_calls.check_key(data, pinned, path):
            return data, []
    response, info = fetch_url(module, given["key_url"], timeout=apt_calls.FETCH_TIMEOUT)
    if response is None or info["status"] not in (200, -1):
        expected, action = "the key of the repository", "correct nvidia_repository_key_url, or start the mirror"
        found = f"{given['key_url']}: {info['msg']}"
        return b"", [Finding("key of the repository", found, expected, action)]
    data = response.read()
    return data, apt_calls.check_key(data, pinned, given["key_url"])


def network_files(uri: str, label: str, key: bytes) -> dict[str, bytes | None]:
    """Return the files of NVIDIA's repository."""
    path, other = KEYS if openpgp.is_armored(key) else reversed(KEYS)
    return {
        path: key,
        other: None,
        PIN: apt_sources.network_preferences(label, PURPOSE).encode(),
        NETWORK: apt_sources.network_source(uri, path, PURPOSE).encode(),
    }


def second_source(uri: str, label: str) -> list[Finding]:
    """Find another source of the same packages: apt would refuse it, or mix the two."""
    found = apt_calls.other_sources(uri, label, NETWORK)
    if not found:
        return []
    action = "remove the other (apt-get purge cuda-keyring, or the file), or the provider here"
    return [Finding("second source of NVIDIA's packages", "; ".join(found), f"{uri} alone", action)]


def try_network(uri: str, label: str, files: dict[str, bytes | None]) -> list[Finding]:
    """Find what is wrong with NVIDIA's repository before apt knows it."""
    key_path = next(path for path in KEYS if files[path])
    findings, release = apt_calls.try_source((files[NETWORK] or b"").decode(), files[key_path], key_path, uri)
    if not findings and release.get("label") != label:
        found = f"{uri} has the label {release.get('label', '')!r}"
        action = "correct nvidia_repository_url, or nvidia_repository_label for a mirror with a label of its own"
        return [Finding("package repository", found, f"{label!r}, which the pin goes by", action)]
    return findings


def distro_files(given: dict[str, Any]) -> dict[str, bytes | None]:
    """Return the file of the distribution's components, none where all are configured."""
    text = apt_sources.component_sources(
        apt_calls.targets(), given["codename"], given["components"], given["origins"], DISTRO, PURPOSE
    )
    return {DISTRO: text.encode() if text else None}


def required_files(module: AnsibleModule) -> tuple[dict[str, bytes | None], list[Finding]]:
    """Return the files as they are to be, and findings."""
    given = module.params
    network = given["provider"] == "network_repo"
    if not network:
        files = distro_files(given)
        text = files[DISTRO]
        if module.check_mode and text and apt_calls.differing(files):
            where = "components " + ", ".join(given["components"]) + " of this node's mirrors"
            return files, apt_calls.try_source(text.decode(), None, DISTRO, where)[0]
        return files, []
    findings = second_source(given["uri"], given["label"])
    key, faults = bring_key(module)
    if findings or faults:
        return {}, findings + faults
    files = network_files(given["uri"], given["label"], key)
    if module.check_mode and apt_calls.differing(files):
        findings = try_network(given["uri"], given["label"], files)
    return files, findings


def place(files: dict[str, bytes | None]) -> dict[str, bytes | None]:
    """Write the files, and return them as before. As before they are where apt cannot read its sources then."""
    before = {path: apt_calls.read_bytes(path) for path in files}
    apt_calls.place(files)
    try:
        # apt reads none of its sources while two of them contradict each other.
        apt_calls.targets()
    except apt_calls.AptError:
        apt_calls.place(before)
        raise
    return before


def change(module: AnsibleModule, files: dict[str, bytes | None]) -> None:
    """Write the files and fetch the lists; when that fails, have the files as before."""
    before = place(files)
    network = module.params["provider"] == "network_repo"
    source = Source(module.params["uri"] if network else "", tuple(module.params["origins"]))
    if network or files[DISTRO]:
        fault = apt_calls.refresh(NETWORK if network else DISTRO, source, only=True)
        if fault:
            apt_calls.place(before)
            module.fail_json(msg=f"{fault.found}. {fault.action.capitalize()}. Nothing was changed.")


def add(module: AnsibleModule) -> None:
    """Configure the source."""
    files, findings = required_files(module)
    findings = [replace(finding, host=module.params["host"]) for finding in findings]
    differing = apt_calls.differing(files)
    if findings and not module.check_mode:
        module.fail_json(msg=" ".join(f"{finding.found}; {finding.action}." for finding in findings))
    if differing and not findings and not module.check_mode:
        change(module, files)
    module.exit_json(changed=bool(differing), files=differing, findings=[finding.as_dict() for finding in findings])


def remove(module: AnsibleModule) -> None:
    """Remove the source."""
    files = dict.fromkeys((NETWORK, PIN, *KEYS) if module.params["provider"] == "network_repo" else (DISTRO,))
    differing = apt_calls.differing(files)
    if differing and not module.check_mode:
        place(files)
    module.exit_json(changed=bool(differing), files=differing, findings=[])


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
            fault = apt_calls.refresh(NETWORK, self.source, only)
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


def install(module: AnsibleModule) -> None:
    """Install the packages and keep them."""
    output, given = "", module.params
    work = Work(given)
    findings = [replace(finding, host=given["host"]) for finding in work.findings]
    if findings and not module.check_mode:
        module.fail_json(msg=" ".join(f"{finding.check}: {finding.found}; {finding.action}." for finding in findings))
    files = {} if findings or work.pending else work.files()
    changed = bool(work.actions() or apt_calls.differing(files)) and not findings
    if changed and not module.check_mode:
        output = apt_calls.apply(work.plan, given["recommends"], files)
    module.exit_json(
        changed=changed,
        due=changed,
        versions=work.plan.versions,
        actions=work.actions(),
        pending=work.pending,
        installed=installed.by_apt(output, list(work.plan.versions)),
        findings=[finding.as_dict() for finding in findings],
    )


def main() -> None:
    """Run the step."""
    module = AnsibleModule(argument_spec=options_of_step(STEPS, _load_params()), supports_check_mode=True)
    try:
        {"add": add, "remove": remove, "install": install}[module.params["step"]](module)
    except (apt_calls.AptError, WordError) as error:
        module.fail_json(msg=f"{module.params['host']}: {error}")


if __name__ == "__main__":
    main()
