# SPDX-License-Identifier: Apache-2.0
"""Read or write the table of an upgrade. Documentation: library/nvidia_upgrade_table.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.module_utils.trainyard.nvidia.upgrade import table_text
from ansible.module_utils.trainyard_controller.action_plugin import Documented
from ansible.module_utils.trainyard_controller.upgrade_table import folder_of, note, read_table


class ActionModule(Documented):
    def answer(self, given: dict[str, Any]) -> dict[str, Any]:
        folder, entries = folder_of(Path(given["runs"]), given["cluster"]), given["entries"]
        if self._task.check_mode:
            table = {**read_table(folder), **entries}
        else:
            table = note(folder, entries, given["batches"]) if entries else read_table(folder)
        text = table_text(table, given["batches"], entries or None)
        return {"table": table, "text": text, "folder": str(folder)}
