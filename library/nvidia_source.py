#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Add a source of NVIDIA's packages to apt: the vendor's repository, or the distribution's own components."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: nvidia_source
short_description: Configure where apt has NVIDIA's packages from
description:
  - Writes key, source and pin of NVIDIA's repository or of a mirror of it, or the source of the distribution's
    components with NVIDIA's packages, at the mirrors of the node.
  - In check mode a new source is tried apart from the system's own lists. A key with another fingerprint, a repository
    without an answer or with a wrong signature, and a second source of the same packages are findings. Outside of check
    mode they are failures, and the files stay.
options:
  provider:
    description: V(network_repo) for NVIDIA's repository or a mirror, V(distro) for components of the distribution.
    type: str
    choices: [network_repo, distro]
    required: true
  state:
    description: V(absent) removes what this module wrote for O(provider).
    type: str
    choices: [present, absent]
    default: present
  uri:
    description: Address of the repository, the folder with its Release file.
    type: str
    default: ""
  label:
    description: Label in its Release file, which the pin goes by.
    type: str
    default: NVIDIA CUDA
  key_url:
    description: Address of the key, for the node.
    type: str
    default: ""
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
  codename:
    description: Codename of the distribution's release.
    type: str
    default: ""
  components:
    description: Components that have NVIDIA's packages.
    type: list
    elements: str
    default: []
  origins:
    description: Origins by which the distribution's own repositories are known.
    type: list
    elements: str
    default: [Debian, Ubuntu]
attributes:
  check_mode:
    support: full
    description: Nothing is changed; a new source is tried in a temporary folder.
extends_documentation_fragment: inventory_name
"""

EXAMPLES = r"""
- name: See whether the repository can be used
  nvidia_source:
    host: "{{ inventory_hostname }}"
    provider: network_repo
    uri: https://mirror.example.org/cuda/repos/debian12/x86_64
    key_url: https://mirror.example.org/cuda/repos/debian12/x86_64/3bf863cc.pub
    fingerprints: [EB693B3035CD5710E231E123A4B469963BF863CC]
  check_mode: true
  register: source
"""

RETURN = r"""
findings:
  description: All findings, each with host, check, found, expected and action.
  returned: success
  type: list
  elements: dict
files:
  description: Files that are, or in check mode would be, written or removed.
  returned: success
  type: list
  elements: str
"""

import base64
from dataclasses import replace
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.base.findings import Finding
from ansible.module_utils.trainyard.software import apt_sources, openpgp
from ansible.module_utils.trainyard.software.apt import Source
from ansible.module_utils.trainyard.software.words import WordError
from ansible.module_utils.trainyard_node.software import apt_calls
from ansible.module_utils.urls import fetch_url

PURPOSE = "Written by trainyard, role nvidia_repository."
NETWORK = "/etc/apt/sources.list.d/trainyard-nvidia.sources"
DISTRO = "/etc/apt/sources.list.d/trainyard-nvidia-distro.sources"
PIN = "/etc/apt/preferences.d/trainyard-nvidia"
KEYS = ("/etc/apt/keyrings/trainyard-nvidia.asc", "/etc/apt/keyrings/trainyard-nvidia.gpg")


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
    if given["state"] == "absent":
        return dict.fromkeys((NETWORK, PIN, *KEYS) if network else (DISTRO,)), []
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


def change(module: AnsibleModule, files: dict[str, bytes | None]) -> None:
    """Write the files and fetch the lists; when that fails, have the files as before."""
    before = {path: apt_calls.read_bytes(path) for path in files}
    apt_calls.place(files)
    try:
        # apt reads none of its sources while two of them contradict each other.
        apt_calls.targets()
    except apt_calls.AptError:
        apt_calls.place(before)
        raise
    if module.params["state"] == "absent":
        return
    network = module.params["provider"] == "network_repo"
    source = Source(module.params["uri"] if network else "", tuple(module.params["origins"]))
    if network or files[DISTRO]:
        fault = apt_calls.refresh(NETWORK if network else DISTRO, source, only=True)
        if fault:
            apt_calls.place(before)
            module.fail_json(msg=f"{fault.found}. {fault.action.capitalize()}. Nothing was changed.")


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "str", "required": True},
            "provider": {"type": "str", "choices": ["network_repo", "distro"], "required": True},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "uri": {"type": "str", "default": ""},
            "label": {"type": "str", "default": "NVIDIA CUDA"},
            "key_url": {"type": "str", "default": ""},
            "key": {"type": "str", "default": "", "no_log": False},
            "fingerprints": {"type": "list", "elements": "str", "default": []},
            "codename": {"type": "str", "default": ""},
            "components": {"type": "list", "elements": "str", "default": []},
            "origins": {"type": "list", "elements": "str", "default": ["Debian", "Ubuntu"]},
        },
        supports_check_mode=True,
    )
    try:
        files, findings = required_files(module)
        findings = [replace(finding, host=module.params["host"]) for finding in findings]
        differing = apt_calls.differing(files)
        if findings and not module.check_mode:
            module.fail_json(msg=" ".join(f"{finding.found}; {finding.action}." for finding in findings))
        if differing and not findings and not module.check_mode:
            change(module, files)
    except (apt_calls.AptError, WordError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=bool(differing), files=differing, findings=[finding.as_dict() for finding in findings])


if __name__ == "__main__":
    main()
