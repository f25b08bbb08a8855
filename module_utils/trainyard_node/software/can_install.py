# SPDX-License-Identifier: Apache-2.0
"""What would keep software from being installed here, as far as this machine can know before anything is touched.

Asked once for all that a host is to get. Where everything is there already, nobody else is asked: indexes and mirrors
only where something would have to come from them.
"""

from __future__ import annotations

import base64
import glob
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...trainyard.findings.findings import Finding
from ...trainyard.software.requirements import without_password
from . import addresses, package_index
from .environment_work import Work
from .python_environment import EnvironmentFailure

# The account that verifies an environment may not be there yet, and neither may libraries.
_NOT_YET = {"verify_script": "", "verify_user": "", "verify_timeout": 0, "verify_environment": {}, "verify": False}


def can_install(*, wanted: Mapping[str, Mapping[str, Any]], pip: str = "") -> dict[str, Any]:
    """Return `findings` on what is wanted, by part; `files` of the controller that are needed; whether to ask an index.

    A part may have `environment` (arguments of the module python_environment), with `prefix`, how the variables of its
    sources begin, and `manage_system`; and `sources`, each with `what` it is, `variables` that name it, `unless` (a
    pattern of paths below the part's `root`, one of them there when it is), and a `url` for this machine, or none where
    the controller brings it. `pip` is pip as a zip file in base64; without it, no index is asked, and `asks_index` says
    that one would be.
    """
    found: list[Finding] = []
    works: list[tuple[str, Work]] = []
    files: list[str] = []
    for name, part in wanted.items():
        if part.get("environment"):
            work, faults = _environment(name, part)
            found += faults
            works += [(str(part["prefix"]), work)] if work and not faults else []
        for source in part.get("sources", ()):
            if glob.glob(str(Path(part.get("root") or "/", source["unless"])), recursive=True):  # noqa: PTH207 (absolute)
                continue
            found += _source(source)
            files += [] if source.get("url") else [source["what"]]
    asked = [(prefix, work) for prefix, work in works if package_index.to_ask(work)]
    if pip and asked:
        with tempfile.TemporaryDirectory(prefix="trainyard-pip-") as folder:
            zipped = Path(folder, "pip.zip")
            zipped.write_bytes(base64.b64decode(pip))
            for prefix, work in asked:
                found += package_index.findings(work, prefix, zipped)
    return {"findings": [finding.as_dict() for finding in found], "files": files, "asks_index": bool(asked) and not pip}


def _environment(name: str, part: Mapping[str, Any]) -> tuple[Work | None, list[Finding]]:
    """Look at one environment: the work that it would be, and what keeps it from being made."""
    params = {**part["environment"], **_NOT_YET}
    try:
        work = Work(params)
    except EnvironmentFailure as error:
        said, _, action = str(error).partition("; ")
        found = Finding(check=f"Python of {name}", found=said, expected="an interpreter that runs", action=action)
        return None, [found]
    faults = [replace(finding, check=f"{finding.check} of {name}") for finding in work.findings]
    if work.remake and not work.interpreter.can_make_environments and not part.get("manage_system"):
        major, minor = work.interpreter.minor
        faults.append(
            Finding(
                check=f"Python of {name}",
                found=f"{work.interpreter.executable} cannot make virtual environments: ensurepip is missing",
                expected="Python's venv module, as trainyard_manage_system is false",
                action=f"install python{major}.{minor}-venv (Debian, Ubuntu), or name an interpreter that has it",
            )
        )
    for package, address in params["wheels"].items() if work.install else ():
        variables = f"{part['prefix']}_wheel_url"
        faults += _source({"what": f"the wheel of {package}", "url": address, "variables": variables})
    return work, faults


def _source(source: Mapping[str, Any]) -> Sequence[Finding]:
    """Find whether the address of a source answers, where it has one."""
    url = str(source.get("url") or "")
    fault = addresses.fault(url) if url else ""
    if not fault:
        return []
    return [
        Finding(
            check=f"source of {source['what']}",
            found=f"{without_password(url).partition('#')[0]}: {fault}",
            expected="an address from which the node can have it",
            action=f"see how the node reaches it (name, proxy, firewall), or name another in {source['variables']}",
        )
    ]
