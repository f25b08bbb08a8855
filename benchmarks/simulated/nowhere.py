# SPDX-License-Identifier: Apache-2.0
"""Connection plugin nowhere: a simulated host that answers at once, for benchmarks of the controller.

Nothing is run and nothing is connected to. It answers what `launch.yml --check` asks nodes with what a healthy node of
8 GPUs says, so what is left is what the controller itself costs.
"""

from __future__ import annotations

DOCUMENTATION = r"""
name: nowhere
short_description: A host that answers at once, for benchmarks
description:
  - Answers probe and preflight with the facts of C(simulated_facts) in the name of the host, and runs nothing.
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
    description: File with the facts of a node, as the agent's probe returns them.
    type: path
    vars:
      - name: simulated_facts
"""

import functools
import json
from pathlib import Path
from typing import Any

from ansible.plugins.connection import ConnectionBase


@functools.lru_cache(maxsize=1)
def _text(path: str) -> str:
    return Path(path).read_text()


class Connection(ConnectionBase):
    """See the module's docstring."""

    transport = "nowhere"
    has_pipelining = True

    def _connect(self) -> Connection:
        self._connected = True
        return self

    def exec_command(self, cmd: str, in_data: bytes | None = None, sudoable: bool = True) -> tuple[int, bytes, bytes]:
        """Answer the question that the first line of the input names."""
        super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        head = json.loads((in_data or b"{}").partition(b"\n")[0])
        answers: dict[Any, Any] = {"probe": lambda: {"node": self._node()}, "folders": lambda: {"folders": []}}
        answer = answers.get(head.get("question"), lambda: {"findings": [], "programs": {}, "stale": False})()
        return 0, f"\n{head.get('mark')} {json.dumps(answer)}\n".encode(), b""

    def _node(self) -> dict[str, Any]:
        node: dict[str, Any] = json.loads(_text(self.get_option("facts")))
        node["hostname"] = self.get_option("host")
        address = f"{self.get_option('address')}/8"
        for interface in node["networks"]["interfaces"]:
            if interface["name"] == "eth0":
                interface["addresses"] = [address]
        return node

    def put_file(self, in_path: str, out_path: str) -> None:
        """Nothing is kept."""

    def fetch_file(self, in_path: str, out_path: str) -> None:
        """Nothing is there."""

    def close(self) -> None:
        """Nothing is open."""
