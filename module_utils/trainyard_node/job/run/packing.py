# SPDX-License-Identifier: Apache-2.0
"""Build `trainyard.pyz` (runtime.py): a zip of that module and of all that it imports."""

from __future__ import annotations

import sys

_ENTRY = "trainyard_node/job/run/runtime.py"
_MAIN = b"import sys\nfrom runtime.trainyard_node.job.run.runtime import main\nsys.exit(main(sys.argv[1:]))\n"


def pack() -> bytes:
    """Build trainyard.pyz, as text and compiled.

    The compiled code is for the present Python; another one, such as one of a virtual environment, uses the text.
    """
    import io
    import zipfile

    from ....trainyard.base.own_imports import files_of

    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("__main__.py", _MAIN)
        archive.writestr("runtime/__init__.py", b"")
        for path, text in files_of([_ENTRY], _source).items():
            archive.writestr(f"runtime/{path}", text)
            archive.writestr(f"runtime/{path}c", _compiled(path, text))
    return content.getvalue()


def packed() -> bytes:
    """Return trainyard.pyz, which an agent keeps beside its modules, where nobody else may write.

    The program that a scheduler starts is one itself (trainyard_node/keep.py).
    """
    import contextlib
    from pathlib import Path

    from ...machine.json_files import write_bytes

    program = getattr(__spec__.loader if __spec__ else None, "archive", "")
    if program:
        return Path(program).read_bytes()
    if not __name__.startswith("agent."):
        return pack()
    kept = Path(__file__).parents[4] / f"trainyard-{sys.implementation.cache_tag}.pyz"
    with contextlib.suppress(OSError):
        return kept.read_bytes()
    made = pack()
    # Without room it is packed again.
    with contextlib.suppress(OSError):
        write_bytes(kept, made)
    return made


def _module(path: str) -> str:
    """Return the name of a module here: the parent package differs between Ansible's side and the agent's."""
    return f"{__name__.rsplit('.', 4)[0]}.{path.removesuffix('.py').removesuffix('/__init__').replace('/', '.')}"


def _source(path: str) -> str | None:
    from importlib import util

    try:
        found = util.find_spec(_module(path))
    except ModuleNotFoundError:
        return None
    is_package = found is not None and found.submodule_search_locations is not None
    if found is None or found.loader is None or is_package != path.endswith("/__init__.py"):
        return None
    text: str | None = found.loader.get_source(found.name)  # type: ignore[attr-defined]
    return text


def _compiled(path: str, text: str) -> bytes:
    import marshal
    from importlib import util

    found = util.find_spec(_module(path))
    code = found.loader.get_code(found.name)  # type: ignore[union-attr]
    # PEP 552; flag 1: used without a check of the source.
    head = util.MAGIC_NUMBER + (1).to_bytes(4, "little") + util.source_hash(text.encode())
    return head + marshal.dumps(code)
