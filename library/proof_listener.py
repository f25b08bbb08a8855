#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Listen on the job network for a while, as a job's processes would, so that others can try to connect."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: proof_listener
short_description: Listen on the job network for a while, so that other nodes can try to connect
description:
  - With O(state=started) starts one small process that listens on two TCP ports of O(address), one outside the
    ephemeral range and one that the kernel gives, and answers with a token. It ends by itself after O(life) seconds.
  - With O(state=absent) ends that process, and tells whether it had lived until then.
  - Works with and without systemd; nothing is written to the node.
version_added: "0.2.0"
options:
  state:
    description: Whether to start or to end the listener.
    type: str
    choices: [started, absent]
    default: started
  host:
    description: Inventory name of this node, by which the listener calls itself.
    type: str
    required: true
  address:
    description: Address of this node on the job network. Needed with O(state=started).
    type: str
  addresses:
    description: All addresses of this node, to which its host name may lead; for the record that is returned.
    type: list
    elements: str
    default: []
  token:
    description: Text without spaces that tells this test from any other service. Needed with O(state=started).
    type: str
  life:
    description: Seconds after which the listener ends whatever happens.
    type: int
    default: 300
  pid:
    description: Process id that O(state=started) returned. Needed with O(state=absent).
    type: int
  start_time:
    description: Start time of that process, in clock ticks since boot. Needed with O(state=absent).
    type: int
attributes:
  check_mode:
    support: full
    description: Nothing on the node is changed in either mode; the listener is started all the same.
author:
  - trainyard
seealso:
  - module: proof_reach
"""

EXAMPLES = r"""
- name: Listen
  proof_listener:
    host: "{{ inventory_hostname }}"
    address: 10.0.0.3
    token: "{{ token }}"
  register: listener

- name: Listen no longer
  proof_listener:
    state: absent
    host: "{{ inventory_hostname }}"
    pid: "{{ listener.pid }}"
    start_time: "{{ listener.start_time }}"
"""

RETURN = r"""
endpoint:
  description: >-
    Where the node listens: C(host), C(address), C(ports) by the way that leads to them, C(hostname) that the kernel
    has, C(addresses).
  returned: O(state=started)
  type: dict
  sample:
    host: n3
    address: 10.77.0.13
    ports: {"rendezvous port": 23456, "port of the kernel's": 40123}
    hostname: n3
    addresses: [10.77.0.13]
pid:
  description: Process id of the listener.
  returned: O(state=started)
  type: int
start_time:
  description: Start time of the listener in clock ticks since boot.
  returned: O(state=started)
  type: int
lived:
  description: Whether the listener had lived until it was ended.
  returned: O(state=absent)
  type: bool
"""

import socket

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard_node.reach import start_listener, stop_listener


def main() -> None:
    """Start or end the listener."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["started", "absent"], "default": "started"},
            "host": {"type": "str", "required": True},
            "address": {"type": "str"},
            "addresses": {"type": "list", "elements": "str", "default": []},
            "token": {"type": "str", "no_log": False},
            "life": {"type": "int", "default": 300},
            "pid": {"type": "int"},
            "start_time": {"type": "int"},
        },
        required_if=[("state", "started", ["address", "token"]), ("state", "absent", ["pid"])],
        supports_check_mode=True,
    )
    given = module.params
    if given["state"] == "absent":
        module.exit_json(changed=False, lived=stop_listener(given["pid"], given["start_time"]))
    try:
        found = start_listener(given["address"], given["host"], given["token"], max(1, given["life"]))
    except OSError as error:
        module.fail_json(
            msg=f"{given['host']}: nothing can listen on {given['address']}: {error.strerror or error}; expected an "
            "address of this node on the job network, see `ip address`."
        )
    endpoint = {
        "host": given["host"],
        "address": given["address"],
        "ports": found["ports"],
        "hostname": socket.gethostname(),
        "addresses": given["addresses"],
    }
    module.exit_json(changed=False, endpoint=endpoint, pid=found["pid"], start_time=found["start_time"])


if __name__ == "__main__":
    main()
