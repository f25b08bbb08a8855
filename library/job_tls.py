#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ansible module job_tls: make or check the TLS certificates of one job, on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: job_tls
short_description: Make or check the TLS certificates of one job
description:
  - Keeps a certificate authority for the jobs of a cluster in a folder of the controller. For each job it makes server
    and client certificates in p12 files with passwords, the revocation list, and the JSON file that MindSpore reads.
    They are valid for the time limit of the job and 8 more days.
  - With O(certificates), it checks and returns these instead.
  - Problems are returned as RV(findings); nothing is made then. The authority's private key never leaves its folder.
options:
  cluster:
    description: Name of the cluster and of its authority.
    type: str
    required: true
  ca_dir:
    description: Folder of the authority, created with mode 0700. Keep a backup of it.
    type: path
    required: true
  job_id:
    description: The job, the name in its new certificates.
    type: str
    default: ""
  job_dir:
    description: The job's folder on the nodes.
    type: str
    default: ""
  valid_s:
    description: Time limit of the job in seconds.
    type: int
    required: true
  warning_days:
    description: Warn if the authority or a certificate in O(certificates) expires within this many days.
    type: int
    default: 90
  ciphers:
    description: Cipher suites by OpenSSL's names. The default are those that MindSpore 2 knows.
    type: list
    elements: str
    default:
      - ECDHE-RSA-AES128-GCM-SHA256
      - ECDHE-ECDSA-AES128-GCM-SHA256
      - ECDHE-RSA-AES256-GCM-SHA384
      - ECDHE-ECDSA-AES256-GCM-SHA384
      - ECDHE-RSA-CHACHA20-POLY1305
      - ECDHE-ECDSA-AES128-CCM
      - ECDHE-ECDSA-AES256-CCM
      - ECDHE-ECDSA-CHACHA20-POLY1305
  revoked:
    description: Jobs whose certificates are revoked, for good.
    type: list
    elements: str
    default: []
  certificates:
    description: Files on the controller to use instead, C(ca), C(server), C(client) (p12) and optional C(crl).
    type: dict
    default: {}
  base_dir:
    description: Folder for relative paths in O(certificates).
    type: path
    default: .
  server_password:
    description: Password of the server's p12 file, required with O(certificates). The default is a random one.
    type: str
    default: ""
  client_password:
    description: Password of the client's p12 file, likewise.
    type: str
    default: ""
requirements:
  - cryptography (Python package; ansible-core brings it)
attributes:
  check_mode:
    description: Checks the authority or the files, and makes nothing.
    support: full
"""

EXAMPLES = r"""
- name: Make the job's certificates
  job_tls:
    cluster: lab
    ca_dir: ~/.trainyard/lab/tls_ca
    job_id: digits-20261120-101500-3f9c
    job_dir: /var/lib/trainyard/jobs/digits-20261120-101500-3f9c
    valid_s: 3600
  delegate_to: localhost
  run_once: true
  no_log: true
"""

RETURN = r"""
findings:
  description: Problems that keep the job from running with TLS.
  returned: always
  type: list
  elements: dict
soon:
  description: A sentence for each certificate that expires soon.
  returned: always
  type: list
  elements: str
env:
  description: The new passwords by environment variable. Secret.
  returned: always
  type: dict
files:
  description: The files for the job's folder on each node, base64 by path. Secret.
  returned: always
  type: dict
"""

import base64
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule, missing_required_lib
from ansible.module_utils.trainyard.base.findings import Finding
from ansible.module_utils.trainyard.job.file import mindspore_tls

try:
    from ansible.module_utils.trainyard_controller.job.job_certificates import check_own, make

    HAS_CRYPTOGRAPHY = True
except ImportError:
    HAS_CRYPTOGRAPHY = False


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "cluster": {"type": "str", "required": True},
            "ca_dir": {"type": "path", "required": True},
            "job_id": {"type": "str", "default": ""},
            "job_dir": {"type": "str", "default": ""},
            "valid_s": {"type": "int", "required": True},
            "warning_days": {"type": "int", "default": 90},
            "ciphers": {"type": "list", "elements": "str", "default": list(mindspore_tls.DEFAULT_CIPHERS)},
            "revoked": {"type": "list", "elements": "str", "default": []},
            "certificates": {"type": "dict", "default": {}},
            "base_dir": {"type": "path", "default": "."},
            "server_password": {"type": "str", "default": "", "no_log": True},
            "client_password": {"type": "str", "default": "", "no_log": True},
        },
        supports_check_mode=True,
    )
    params = module.params
    if not HAS_CRYPTOGRAPHY:
        module.fail_json(msg=missing_required_lib("cryptography"))
    result: dict[str, Any] = {"changed": False, "soon": [], "env": {}, "files": {}}
    try:
        findings = check_own(params, result) if params["certificates"] else make(params, module.check_mode, result)
    except (OSError, ValueError) as error:
        found = f"{Path(params['ca_dir'])} on the controller: {error}"
        action = "repair it; or move it away, then the next launch makes a new authority"
        findings = [Finding("tls", found, "the folder of the jobs' authority", action)]
    if result["files"]:
        # MindSpore need not warn about certificates that live no longer than the job.
        days = params["warning_days"] if params["certificates"] else mindspore_tls.MIN_WARNING_DAYS
        config = mindspore_tls.configuration(
            params["job_dir"], days, mindspore_tls.REVOCATION_LIST in result["files"], params["ciphers"]
        )
        result["files"][mindspore_tls.CONFIG] = config.encode()
    result["files"] = {name: base64.b64encode(content).decode() for name, content in result["files"].items()}
    module.exit_json(findings=[finding.as_dict() for finding in findings], **result)


if __name__ == "__main__":
    main()
