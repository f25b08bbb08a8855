# SPDX-License-Identifier: Apache-2.0
"""Write the files that nodes sent of a job (job_outputs) below runs/<job_id>/outputs, a folder for each host, and list
those that are there.
"""

from __future__ import annotations

import base64
import errno
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...trainyard.base.findings import counted
from ...trainyard.base.visible import one_line
from ...trainyard.job.run.measure.checkpoints import file_size
from ...trainyard.report.job_page import OutputFile
from .run_folder import NotWrittenError, write_whole

# A part of a path: a node chose it, so it is no `..`, and all of it can be seen.
_PART = re.compile(r"(?!\.{1,2}$)[^/]+")
# Bytes of a part, as file systems take 255 and a file is written under a longer name first.
_MAX_PARTS, _MAX_PART, _MAX_NAMED = 24, 200, 3
# A node sent a file and a folder of the same name.
_IN_THE_WAY = {errno.EEXIST, errno.ENOTDIR, errno.EISDIR}


def write_outputs(run_dir: Path, answers: Mapping[str, dict[str, Any]]) -> list[str]:
    """Take the outputs out of the hosts' answers, write them, and return lines about them. Raises NotWrittenError."""
    number, total, left_out, unmatched, too_large = 0, 0, [], [], False
    for host, answer in answers.items():
        outputs = answer.pop("outputs", None) or {}
        taken: set[Path] = set()
        unmatched += [set(outputs.get("unmatched") or ())] if outputs else []
        for name, content in outputs.get("files", {}).items():
            target = _target(run_dir / "outputs" / host, name)
            if target is None:
                left_out.append(f"{host}: {_quoted(name)}, which is no usual name")
                continue
            try:
                data = base64.b64decode(content, validate=True)
            except ValueError:
                left_out.append(f"{host}: {_quoted(name)}, whose content arrived damaged")
                continue
            # An absolute path and one below the working folder may lead to the same place here.
            if target in taken:
                left_out.append(f"{host}: {_quoted(name)}, as another file has its place")
                continue
            taken.add(target)
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                write_whole(target, data)
            except OSError as error:
                if error.errno not in _IN_THE_WAY:
                    raise NotWrittenError(target, error) from error
                left_out.append(f"{host}: {_quoted(name)}, as another file is in its way")
                continue
            number, total = number + 1, total + len(data)
        too_large = too_large or any(not each.get("why") for each in outputs.get("left_out", ()))
        left_out += [
            f"{host}: {_quoted(each['name'])}, {each.get('why') or file_size(each['size'])}"
            for each in outputs.get("left_out", ())
        ]
        if outputs.get("more"):
            left_out.append(f"{host}: {outputs['more']} more")
    lines = [f"outputs     {run_dir}/outputs: {counted(number, 'file')}, {file_size(total)}"] if number else []
    if left_out:
        more = f" and {len(left_out) - _MAX_NAMED} more" if len(left_out) > _MAX_NAMED else ""
        variable = " (job_outputs_limit_mib)" if too_large else ""
        lines.append(f"not brought: {'; '.join(left_out[:_MAX_NAMED])}{more}{variable}")
    # A pattern may match on one node alone, such as that of rank 0.
    nothing = sorted(set.intersection(*unmatched)) if unmatched else []
    if nothing:
        lines.append(f"no file matched: {', '.join(map(_quoted, nothing[:_MAX_NAMED]))} (job_outputs)")
    return lines


def brought(run_dir: Path) -> list[OutputFile]:
    """Return the files in the outputs of a run: those of its job, and others that were put there."""
    found = []
    for folder, folders, names in os.walk(run_dir / "outputs"):
        folders.sort()
        for path in (Path(folder, name) for name in sorted(names)):
            if path.is_file() and not path.is_symlink():
                host, _, name = path.relative_to(run_dir / "outputs").as_posix().partition("/")
                found.append(OutputFile(host if name else "", name or host, path.stat().st_size))
    return found


def _quoted(name: str) -> str:
    """Return a name that a node chose as it stands in a message, so that its end is seen."""
    return repr(one_line(name, 80))


def _target(folder: Path, name: str) -> Path | None:
    """Return where a file is written; None for a name that could lead elsewhere."""
    parts = name.strip("/").split("/")
    if len(parts) > _MAX_PARTS or not all(map(_is_part, parts)):
        return None
    return folder.joinpath(*parts)


def _is_part(part: str) -> bool:
    try:
        return bool(_PART.fullmatch(part)) and part.isprintable() and len(part.encode()) <= _MAX_PART
    except UnicodeEncodeError:
        return False
