# SPDX-License-Identifier: Apache-2.0
"""A file that a module owns as a whole: written at once, removed, and shown as a difference. `module` is Ansible's."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any


def difference(path: Path, before: bytes | None, after: bytes) -> dict[str, str]:
    """Return what Ansible shows with --diff."""
    return {
        "before": (before or b"").decode("utf-8", errors="replace"),
        "after": after.decode("utf-8", errors="replace"),
        "before_header": str(path),
        "after_header": str(path),
    }


def write(module: Any, path: Path, before: bytes | None, after: bytes) -> bool:
    """Write a file where it differs, with owner and mode as the module's caller wants them; returns whether it changed.

    `before` is what it holds, None where there is none.
    """
    changed = after != before
    if changed and not module.check_mode:
        handle, name = tempfile.mkstemp(dir=module.tmpdir)
        with os.fdopen(handle, "wb") as stream:
            stream.write(after)
        if before is None:
            # Without `mode`: as any program would make it.
            Path(name).chmod(0o644)
        module.atomic_move(name, str(path))
    if path.exists():
        wanted = module.load_file_common_arguments(module.params, path=str(path))
        changed = bool(module.set_fs_attributes_if_different(wanted, changed))
    return changed


def remove(module: Any, path: Path) -> bool:
    """Remove a file or a link; returns whether there was one."""
    there = path.exists() or path.is_symlink()
    if there and not module.check_mode:
        path.unlink()
    return there
