# SPDX-License-Identifier: Apache-2.0
"""Write and remove a file that a module owns, with the difference for --diff. `module` is an AnsibleModule."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any


def difference(path: Path, before: bytes | str | None, after: bytes | str) -> dict[str, str]:
    """Return what Ansible shows with --diff."""
    texts = [text.decode("utf-8", "replace") if isinstance(text, bytes) else text or "" for text in (before, after)]
    return {"before": texts[0], "after": texts[1], "before_header": str(path), "after_header": str(path)}


def replace(module: Any, path: Path, content: bytes, mode: int | None = None, **options: bool) -> None:
    """Replace a file atomically; `mode` is for a new file, `options` are those of atomic_move."""
    handle, name = tempfile.mkstemp(dir=module.tmpdir)
    with os.fdopen(handle, "wb") as stream:
        stream.write(content)
    if mode is not None and not path.exists():
        Path(name).chmod(mode)
    module.atomic_move(name, str(path), **options)


def write(module: Any, path: Path, before: bytes | None, after: bytes) -> bool:
    """Write a file if it differs, with the owner and mode of the module's options; return whether it changed.

    `before` is its content, None where there is none.
    """
    changed = after != before
    if changed and not module.check_mode:
        replace(module, path, after, mode=0o644)
    if path.exists():
        requested = module.load_file_common_arguments(module.params, path=str(path))
        changed = bool(module.set_fs_attributes_if_different(requested, changed))
    return changed


def remove(module: Any, path: Path) -> bool:
    """Remove a file or a link; return whether there was one."""
    exists = path.exists() or path.is_symlink()
    if exists and not module.check_mode:
        path.unlink()
    return exists
