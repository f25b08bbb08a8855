# SPDX-License-Identifier: Apache-2.0
"""Connection plugin nowhere: a stand-in for a host that answers at once, for benchmarks of the controller.

Nothing is run and nothing is connected to. It answers the modules that `launch.yml --check` runs on nodes with what a
healthy node of 8 GPUs says, so what is left is what the controller itself costs.
"""

from __future__ import annotations

DOCUMENTATION = r"""
name: nowhere
short_description: A host that answers at once, for benchmarks
description:
  - Answers node_info and job_preflight with the facts of C(simulated_facts) in the name of the host, and runs nothing.
author: trainyard
options:
  host:
    description: Inventory name of the host.
    type: str
    vars:
      - name: inventory_hostname
  address:
    description: Its address.
    type: str
    vars:
      - name: simulated_address
  facts:
    description: File with the facts of a node, as node_info returns them.
    type: path
    vars:
      - name: simulated_facts
"""

import json
from pathlib import Path
from typing import Any

from ansible.plugins.connection import ConnectionBase


class Connection(ConnectionBase):  # type: ignore[misc]
    """See the module's docstring."""

    transport = "nowhere"
    has_pipelining = True

    def _connect(self) -> Connection:
        self._connected = True
        return self

    def exec_command(self, cmd: str, in_data: bytes | None = None, sudoable: bool = True) -> tuple[int, bytes, bytes]:
        """Answer a module by its name in what would be run."""
        super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        if not in_data or b"job_preflight" in in_data:
            return 0, json.dumps({"changed": False, "findings": [], "programs": {}, "stale": False}).encode(), b""
        return 0, json.dumps({"changed": False, "node": json.dumps(self._node())}).encode(), b""

    def _node(self) -> dict[str, Any]:
        node: dict[str, Any] = json.loads(Path(self.get_option("facts")).read_text())
        node["hostname"] = self.get_option("host")
        address = f"{self.get_option('address')}/8"
        for interface in node["fabric"]["interfaces"]:
            if interface["name"] == "eth0":
                interface["addresses"] = [address]
        return node

    def put_file(self, in_path: str, out_path: str) -> None:
        """Nothing is kept."""

    def fetch_file(self, in_path: str, out_path: str) -> None:
        """Nothing is there."""

    def close(self) -> None:
        """Nothing is open."""
