#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ansible module ssh_certificates: the cluster's ssh certificate authority signs and revokes for all nodes at once."""

from __future__ import annotations

DOCUMENTATION = r"""
module: ssh_certificates
short_description: Sign and revoke the ssh keys of all nodes of a cluster
description:
  - Keeps an OpenSSH certificate authority for host keys and one for user keys in a folder of the controller, signs the
    public keys of all nodes in one call, and makes the key revocation list.
  - A certificate that is good stays as it is. A new one is made when there is none, when it expires within
    O(renew_before), or when its names are no longer the wanted ones.
  - Private keys of nodes never come here; the authorities' private keys never leave.
  - Revocation lasts. A key that was revoked stays so after its name is taken out of O(revoked).
  - Runs on the controller, once for all nodes, and needs ssh-keygen there.
options:
  ca_dir:
    description: Folder of the authorities, made with mode 0700 when it is missing. Keep a backup of it.
    type: path
    required: true
  cluster:
    description: Name of the cluster, part of every certificate's identity.
    type: str
    required: true
  user:
    description: The one user name that user certificates are valid for.
    type: str
    required: true
  nodes:
    description: >-
      By inventory name what the node answered to question C(ssh_keys) of M(fan_out), with the key that was made since.
    type: dict
    required: true
  inventory:
    description:
      - All hosts of the inventory with C(name), C(ansible_host) and C(ssh_mesh_extra_principals), as far as they have
        them. Host certificates have these names and no others.
    type: list
    elements: dict
    required: true
  members:
    description: Inventory names of the hosts that are nodes or become some, for RV(patterns), beside O(nodes).
    type: list
    elements: str
    default: []
  networks:
    description:
      - Networks (CIDR) over which nodes reach each other, for RV(left_out).
      - With any, user certificates are good from these and from the inventory's addresses only.
    type: list
    elements: str
    default: []
  validity:
    description: How long a certificate lives, as ssh-keygen writes durations.
    type: str
    default: 13w
  renew_before:
    description: A certificate that expires sooner than this is renewed.
    type: str
    default: 4w
  revoked:
    description:
      - Names of nodes that left, all keys of which are revoked; and fingerprints (SHA256) of single keys, lost ones of
        nodes that stay.
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    support: full
    description: Says what would be signed or revoked; the certificates are then placeholders.
  diff_mode:
    support: full
    description: Lists what was signed and revoked, and why.
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
  sample: {n1: {host: "ssh-ed25519-cert-v01@openssh.com AAAA... lab:n1:host", user: "..."}}
host_ca:
  description: Public key of the authority for hosts.
  returned: success
  type: str
user_ca:
  description: Public key of the authority for users.
  returned: success
  type: str
revocation_list:
  description: Path of the key revocation list on the controller, empty while there is none (check mode).
  returned: success
  type: str
revocation_sha256:
  description: Its sha256, empty while there is none.
  returned: success
  type: str
patterns:
  description: For which hosts clients need to trust the authority, as patterns of ssh's known hosts.
  returned: success
  type: list
  elements: str
left_out:
  description: Findings about addresses of nodes that are in no certificate, as the inventory does not give them.
  returned: success
  type: list
  elements: dict
left_out_text:
  description: The same as text, empty where there are none.
  returned: success
  type: str
signed_text:
  description: Which nodes got new certificates, until when they are good and when they are renewed; else empty.
  returned: success
  type: str
actions:
  description: What was made, signed or revoked, and why.
  returned: success
  type: list
  elements: str
findings:
  description: The findings, when there are any.
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
from ansible.module_utils.trainyard.findings.findings import failure, render
from ansible.module_utils.trainyard_controller.ssh_authority import Authority, AuthorityError

# Stands in check mode for what only a real run makes.
PLACEHOLDER = "(made by a run without check mode)"


def work(module: AnsibleModule, authority: Authority, nodes: list[MeshNode], policy: Policy) -> dict[str, Any]:
    """Judge, then sign and revoke. Returns the module's result."""
    now = time.time()
    issued = authority.issued()
    certificates = [certificate for _, certificate in issued]
    revoked = authority.revoked()
    to_revoke = module.params["revoked"]
    gone = to_be_revoked(certificates, revoked, to_revoke, policy.cluster)
    names = declared_names(module.params["inventory"])
    options = user_options(module.params["networks"], names)
    requests = [
        request
        for node in nodes
        for request in (
            Request(node.name, "host", node.host_key, names[node.name]),
            Request(node.name, "user", node.user_key, (module.params["user"],), options),
        )
    ]
    owners = {certificate.key: owner(certificate) for certificate in certificates}
    findings = mesh_findings(nodes, requests, revoked, to_revoke, owners)
    if findings:
        module.fail_json(**failure(findings, "The ssh mesh cannot be made: {count} {findings}. No key was signed."))

    actions = []
    if module.check_mode:
        actions += [f"{kind} authority would be made" for kind, key in policy.authorities.items() if not key]
    else:
        actions += authority.make_keys()
        policy = Policy(policy.cluster, policy.validity, policy.renew_before, authority.fingerprints())
    lines: dict[str, dict[str, str]] = {node.name: {} for node in nodes}
    to_sign = []
    for request in requests:
        index = newest(request, certificates, policy)
        reason = reason_to_sign(request, None if index is None else issued[index][1], policy, now)
        if reason or index is None:
            to_sign.append(request)
            lines[request.node][request.kind] = PLACEHOLDER
            actions.append(f"{request.node}: {request.kind} key {reason}")
        else:
            lines[request.node][request.kind] = issued[index][0]
    actions += [f"{name}: {key} revoked" for key, name in gone.items()]

    if not module.check_mode:
        serial = 1 + max((certificate.serial for certificate in certificates), default=0)
        signed = authority.sign(to_sign, serial, policy, now)
        for request, line in zip(to_sign, signed):
            lines[request.node][request.kind] = line
        authority.keep([line for line, certificate in issued if certificate.valid_to > now] + signed)
        if authority.revoke({**revoked, **gone}) and not gone:
            actions.append("key revocation list made")
    listed = authority.revocation_list()
    members = {*module.params["members"], *lines} & set(names)
    omitted = undeclared_addresses(nodes, module.params["networks"], names)
    return {
        "changed": bool(actions),
        "certificates": lines,
        "host_ca": authority.public_key("host") or PLACEHOLDER,
        "user_ca": authority.public_key("user") or PLACEHOLDER,
        "revocation_list": str(listed or ""),
        "revocation_sha256": hashlib.sha256(listed.read_bytes()).hexdigest() if listed else "",
        "patterns": host_patterns(name for member in members for name in names[member]),
        "left_out": [finding.as_dict() for finding in omitted],
        "left_out_text": render(omitted, "Not every address of the nodes is in a host certificate: {count} {findings}.")
        if omitted
        else "",
        "signed_text": signing_report(to_sign, policy, now),
        "actions": actions,
        "diff": {"before": "", "after": "".join(f"{action}\n" for action in actions)},
    }


def main() -> None:
    """Read the input, lock the folder, work."""
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
    given = module.params
    durations, faults = [], []
    for text in (given["validity"], given["renew_before"]):
        try:
            durations.append(parse_duration(text))
        except ValueError as error:
            faults.append(str(error))
    for network in given["networks"]:
        try:
            ipaddress.ip_network(network, strict=False)
        except ValueError as error:
            faults.append(str(error))
    fault = "" if faults else policy_error(*durations)
    if faults or fault:
        module.fail_json(msg=f"ssh_mesh cannot use its input: {'; '.join(faults) or fault}.")
    validity, renew_before = durations

    nodes = [MeshNode.from_dict(name, record) for name, record in given["nodes"].items()]
    authority = Authority(Path(given["ca_dir"]), given["cluster"])
    try:
        with contextlib.nullcontext() if module.check_mode else authority.locked():
            policy = Policy(given["cluster"], validity, renew_before, authority.fingerprints())
            module.exit_json(**work(module, authority, nodes, policy))
    except (AuthorityError, OSError, ValueError) as error:
        module.fail_json(msg=f"The certificate authority in {authority.folder} on the controller: {error}")


if __name__ == "__main__":
    main()
