#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ansible module ssh_certificates: the cluster's ssh certificate authority signs and revokes for all nodes at once."""

from __future__ import annotations

DOCUMENTATION = r"""
module: ssh_certificates
short_description: Sign and revoke the ssh keys of all nodes of a cluster
description:
  - Keeps OpenSSH certificate authorities for host keys and user keys in a folder of the controller, signs the public
    keys of all nodes in one call, and makes the key revocation list.
  - A valid certificate is kept. It is replaced when it expires within O(renew_before), or when its names change.
  - Private keys of nodes never leave the nodes, those of the authorities never leave the folder.
  - A revoked key stays revoked after its name is taken out of O(revoked).
options:
  ca_dir:
    description: Folder of the authorities, created with mode 0700. Keep a backup of it.
    type: path
    required: true
  cluster:
    description: Name of the cluster, part of every certificate's identity.
    type: str
    required: true
  user:
    description: The only user name for which user certificates are valid.
    type: str
    required: true
  nodes:
    description: By inventory name the result of C(ssh_keys) of M(fan_out), with new keys added.
    type: dict
    required: true
  inventory:
    description: All hosts with C(name), C(ansible_host) and C(ssh_mesh_extra_principals), the names in certificates.
    type: list
    elements: dict
    required: true
  members:
    description: Inventory names of further hosts for RV(patterns), beside O(nodes).
    type: list
    elements: str
    default: []
  networks:
    description: Networks (CIDR) between nodes. With any, user certificates are valid from these and declared addresses.
    type: list
    elements: str
    default: []
  validity:
    description: Lifetime of a certificate, as ssh-keygen writes durations.
    type: str
    default: 13w
  renew_before:
    description: A certificate that expires sooner than this is renewed.
    type: str
    default: 4w
  revoked:
    description: Names of nodes that left, and fingerprints (SHA256) of lost keys of nodes that stay.
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    support: full
    description: Reports what would be signed or revoked; new certificates are placeholders.
  diff_mode:
    support: full
    description: Lists signed and revoked keys with reasons.
"""

EXAMPLES = r"""
- name: Sign the keys of all nodes
  ssh_certificates:
    ca_dir: ~/.trainyard/lab/ssh_ca
    cluster: lab
    user: train
    nodes: {n1: "{{ hostvars.n1.keys }}"}
    inventory: [{name: n1, ansible_host: 10.0.0.1}]
    revoked: [n7]
  delegate_to: localhost
  run_once: true
  register: signed
"""

RETURN = r"""
certificates:
  description: Certificate lines by node and kind.
  returned: success
  type: dict
host_ca:
  description: Public key of the authority for hosts.
  returned: success
  type: str
user_ca:
  description: Public key of the authority for users.
  returned: success
  type: str
revocation_list:
  description: Path of the key revocation list on the controller, or empty.
  returned: success
  type: str
revocation_sha256:
  description: Its sha256, or empty.
  returned: success
  type: str
patterns:
  description: Hosts for which clients trust the authority, as patterns of known_hosts.
  returned: success
  type: list
  elements: str
left_out:
  description: Findings about addresses of nodes that the inventory does not declare.
  returned: success
  type: list
  elements: dict
left_out_text:
  description: The same as text.
  returned: success
  type: str
signed_text:
  description: A sentence about new certificates and their end, or empty.
  returned: success
  type: str
actions:
  description: Created, signed and revoked keys, with reasons.
  returned: success
  type: list
  elements: str
findings:
  description: The findings.
  returned: failure
  type: list
  elements: dict
"""

import contextlib
import hashlib
import ipaddress
import time
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.base.findings import failure, render
from ansible.module_utils.trainyard.cluster.ssh_mesh import (
    MeshNode,
    Policy,
    Request,
    mesh_findings,
    newest,
    owner,
    parse_duration,
    policy_error,
    reason_to_sign,
    signing_report,
    to_be_revoked,
)
from ansible.module_utils.trainyard.cluster.ssh_names import (
    declared_names,
    host_patterns,
    undeclared_addresses,
    user_options,
)
from ansible.module_utils.trainyard_controller.cluster.ssh_authority import Authority, AuthorityError
from ansible.module_utils.trainyard_controller.runs.locks import locked_secrets

# Replaces values that check mode does not create.
PLACEHOLDER = "(made by a run without check mode)"
NOT_DECLARED = "Not every address of the nodes is in a host certificate: {count} {findings}."


def check(
    module: AnsibleModule, authority: Authority, nodes: list[MeshNode], names: dict[str, tuple[str, ...]]
) -> list[Request]:
    """Return the requests of all nodes; fail with all findings."""
    options = user_options(module.params["networks"], names)
    requests = []
    for node in nodes:
        requests.append(Request(node.name, "host", node.host_key, names[node.name]))
        requests.append(Request(node.name, "user", node.user_key, (module.params["user"],), options))
    owners = {certificate.key: owner(certificate) for _, certificate in authority.issued()}
    findings = mesh_findings(nodes, requests, authority.revoked(), module.params["revoked"], owners)
    if findings:
        module.fail_json(**failure(findings, "The ssh mesh cannot be made: {count} {findings}. No key was signed."))
    return requests


def sign(
    module: AnsibleModule, authority: Authority, requests: list[Request], policy: Policy, actions: list[str]
) -> tuple[dict[str, dict[str, str]], list[Request]]:
    """Sign and revoke. Returns the certificate lines by node and kind, and the requests that were signed."""
    now = time.time()
    issued, revoked = authority.issued(), authority.revoked()
    certificates = [certificate for _, certificate in issued]
    lines: dict[str, dict[str, str]] = {request.node: {} for request in requests}
    to_sign = []
    for request in requests:
        index = newest(request, certificates, policy)
        reason = reason_to_sign(request, None if index is None else certificates[index], policy, now)
        if reason or index is None:
            to_sign.append(request)
            lines[request.node][request.kind] = PLACEHOLDER
            actions.append(f"{request.node}: {request.kind} key {reason}")
        else:
            lines[request.node][request.kind] = issued[index][0]
    new = to_be_revoked(certificates, revoked, module.params["revoked"], policy.cluster)
    actions += [f"{name}: {key} revoked" for key, name in new.items()]
    if not module.check_mode:
        serial = 1 + max((certificate.serial for certificate in certificates), default=0)
        signed = authority.sign(to_sign, serial, policy, now)
        for request, line in zip(to_sign, signed):
            lines[request.node][request.kind] = line
        authority.keep([line for line, certificate in issued if certificate.valid_to > now] + signed)
        if authority.revoke({**revoked, **new}) and not new:
            actions.append("key revocation list made")
    return lines, to_sign


def work(module: AnsibleModule, authority: Authority, nodes: list[MeshNode], policy: Policy) -> dict[str, Any]:
    """Check, then sign and revoke. Returns the module's result."""
    names = declared_names(module.params["inventory"])
    requests = check(module, authority, nodes, names)
    if module.check_mode:
        actions = [f"{kind} authority would be made" for kind, key in policy.authorities.items() if not key]
    else:
        actions = authority.make_keys()
        policy = Policy(policy.cluster, policy.validity, policy.renew_before, authority.fingerprints())
    lines, signed = sign(module, authority, requests, policy, actions)
    listed = authority.revocation_list()
    members = {*module.params["members"], *lines} & set(names)
    undeclared = undeclared_addresses(nodes, module.params["networks"], names)
    return {
        "changed": bool(actions),
        "certificates": lines,
        "host_ca": authority.public_key("host") or PLACEHOLDER,
        "user_ca": authority.public_key("user") or PLACEHOLDER,
        "revocation_list": str(listed or ""),
        "revocation_sha256": hashlib.sha256(listed.read_bytes()).hexdigest() if listed else "",
        "patterns": host_patterns(name for member in members for name in names[member]),
        "left_out": [finding.as_dict() for finding in undeclared],
        "left_out_text": render(undeclared, NOT_DECLARED) if undeclared else "",
        "signed_text": signing_report(signed, policy, time.time()),
        "actions": actions,
        "diff": {"before": "", "after": "".join(f"{action}\n" for action in actions)},
    }


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "ca_dir": {"type": "path", "required": True},
            "cluster": {"type": "str", "required": True},
            "user": {"type": "str", "required": True},
            "nodes": {"type": "dict", "required": True},
            "inventory": {"type": "list", "elements": "dict", "required": True},
            "members": {"type": "list", "elements": "str", "default": []},
            "networks": {"type": "list", "elements": "str", "default": []},
            "validity": {"type": "str", "default": "13w"},
            "renew_before": {"type": "str", "default": "4w"},
            "revoked": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    durations, errors = [], []
    for text in (module.params["validity"], module.params["renew_before"]):
        try:
            durations.append(parse_duration(text))
        except ValueError as error:
            errors.append(str(error))
    for network in module.params["networks"]:
        try:
            ipaddress.ip_network(network, strict=False)
        except ValueError as error:
            errors.append(str(error))
    problem = "" if errors else policy_error(*durations)
    if errors or problem:
        module.fail_json(msg=f"ssh_mesh cannot use its input: {'; '.join(errors) or problem}.")
    validity, renew_before = durations

    nodes = [MeshNode.from_dict(name, record) for name, record in module.params["nodes"].items()]
    authority = Authority(Path(module.params["ca_dir"]), module.params["cluster"])
    try:
        with contextlib.nullcontext() if module.check_mode else locked_secrets(authority.folder):
            policy = Policy(module.params["cluster"], validity, renew_before, authority.fingerprints())
            module.exit_json(**work(module, authority, nodes, policy))
    except (AuthorityError, OSError, ValueError) as error:
        module.fail_json(msg=f"The certificate authority in {authority.folder} on the controller: {error}")


if __name__ == "__main__":
    main()
