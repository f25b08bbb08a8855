# SPDX-License-Identifier: Apache-2.0
"""A machine that is read and at the same time written down, in the form of a captured one.

All that the project's readers read or run is copied to a folder that they can read instead of the machine (option
`root` of the modules), so a capture holds what a fixture needs and nothing else. Every text is made anonymous first.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from ansible.module_utils.trainyard_node.machine.tree import Outcome, Tree

# Only the lines that are read are kept: the kernel's log has private details, and CUDA's headers are NVIDIA's.
_OF_DEVICES = re.compile(r"NVRM|nvidia|Xid|mlx5|davinci|hisi|devdrv", re.I)
_READ_OF = {
    "/commands/journalctl.dmesg.out": _OF_DEVICES,
    "/commands/dmesg.out": _OF_DEVICES,
    "/include/crt/host_config.h": re.compile("__GNUC__"),
}


class Recording(Tree):
    """This machine; what is asked of it is kept below `folder`."""

    def __init__(self, folder: Path, anonymous: Callable[[str], str]) -> None:
        """Read the machine and write below the folder."""
        super().__init__("/")
        self.folder, self._anonymous = folder, anonymous

    def _place(self, path: str) -> Path:
        """Return where a path is kept, with the links on its way: in sysfs `..` leads to the port above a device."""
        here = Path("/")
        for part in Path(path.lstrip("/")).parts:
            if part == "..":
                here = here.parent
                continue
            here /= part
            if here.is_symlink():
                real = Path(os.path.realpath(here))
                link = self.folder / here.relative_to("/")
                link.parent.mkdir(parents=True, exist_ok=True)
                if not os.path.lexists(link):
                    link.symlink_to(os.path.relpath(real, here.parent))
                here = real
        return self.folder / here.relative_to("/")

    def _keep(self, path: str, content: str) -> None:
        read = next((pattern for end, pattern in _READ_OF.items() if path.endswith(end)), None)
        if read is not None:
            content = "".join(line for line in content.splitlines(keepends=True) if read.search(line))
        place = self._place(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.is_dir():
            place.write_text(self._anonymous(content), encoding="utf-8")

    def _keep_name(self, path: str) -> None:
        place = self._place(path)
        if super().path(path).is_dir():
            place.mkdir(parents=True, exist_ok=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch()

    def text(self, path: str) -> str | None:
        content = super().text(path)
        if content is not None:
            self._keep(path, content + "\n")
        return content

    def names(self, path: str) -> list[str]:
        found = super().names(path)
        for name in found:
            self._keep_name(f"{path}/{name}")
        return found

    def exists(self, path: str) -> bool:
        found = super().exists(path)
        if found:
            self._keep_name(path)
        return found

    def command(self, name: str, argv: list[str], timeout: float, as_nobody: bool = False) -> Outcome | None:
        outcome = super().command(name, argv, timeout, as_nobody)
        if outcome is not None:
            self._keep(f"/commands/{name}.out", outcome.output)
            if outcome.status:
                self._keep(f"/commands/{name}.rc", f"{outcome.status}\n")
        return outcome
