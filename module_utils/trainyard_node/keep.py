# SPDX-License-Identifier: Apache-2.0
"""Keep the program that a scheduler starts, compiled, for all that this host starts of it and of later jobs.

It stands alone beside the packed program (nodes/agent_code.py), and runs before anything else of it.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import time
from collections.abc import Callable
from zipimport import ZipImportError, zipimporter

# Programs that nothing has used for so long are removed, in seconds.
_UNUSED_S = 30 * 86400


def keep(digest: str, read: Callable[[], bytes]) -> str:
    """Return the path of the compiled program with this digest; `read` returns its zip of texts.

    It lies in a folder of this user on this host: where all hosts share a home, none waits for it.
    """
    folder = _own_folder()
    kept = f"{folder}/{digest}-{sys.implementation.cache_tag}.pyz"
    try:
        # A host that lost power may have half of it.
        zipimporter(kept)
        os.utime(kept)
    except (ZipImportError, OSError):
        with open(f"{kept}.{os.getpid()}", "wb") as file:  # noqa: PTH123 (pathlib costs more than all of this)
            file.write(_compiled(read(), kept))
        os.replace(file.name, kept)  # noqa: PTH105
        _remove_unused(folder)
    return kept


def _own_folder() -> str:
    """Return a folder that only this user can change; a new one where somebody else has taken its name."""
    folder = f"{os.environ.get('TMPDIR') or '/tmp'}/trainyard-{os.geteuid()}"  # noqa: S108 (it is checked)
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)  # noqa: PTH102
    found = os.lstat(folder)
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022:
        return folder
    import tempfile

    return tempfile.mkdtemp(prefix="trainyard-")


def _compiled(code: bytes, place: str) -> bytes:
    """Return a zip with the texts and their compiled code, which another Python ignores."""
    import io
    import marshal
    import zipfile
    from importlib import util

    content = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(code)) as texts, zipfile.ZipFile(content, "w") as made:
        for name in texts.namelist():
            text = texts.read(name)
            made.writestr(name, text, zipfile.ZIP_DEFLATED)
            # PEP 552; flag 1: used without a check of the source.
            head = util.MAGIC_NUMBER + (1).to_bytes(4, "little") + util.source_hash(text)
            made.writestr(f"{name}c", head + marshal.dumps(compile(text, f"{place}/{name}", "exec", dont_inherit=True)))
    return content.getvalue()


def _remove_unused(folder: str) -> None:
    for name in os.listdir(folder):  # noqa: PTH208
        with contextlib.suppress(OSError):
            if os.stat(f"{folder}/{name}").st_mtime < time.time() - _UNUSED_S:  # noqa: PTH116
                os.unlink(f"{folder}/{name}")  # noqa: PTH108
