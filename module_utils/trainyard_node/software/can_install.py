# SPDX-License-Identifier: Apache-2.0
"""Find what prevents the installation of software on this machine, before anything is touched.

One call checks all parts that a host is to get. Indexes and mirrors get requests for missing parts alone, and the role
of a complete part need not check it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...trainyard.base.findings import Finding
from ...trainyard.software import requested
from ...trainyard.software.image import FRAMEWORKS
from ...trainyard.software.requirements import systems_with, without_password
from ...trainyard.software.system_packages import Need, needs_findings
from ..machine import shared_folders
from ..machine.as_user import JobError
from . import addresses, apt_offers, build_prefix, dataset_files, index_queries, locked_packages
from .environment_work import Work
from .python_environment import EnvironmentFailure, Verification, missing_from_system
from .system_family import system_family

# Defaults of an environment's arguments.
PLAIN: dict[str, Any] = {
    **dict.fromkeys(("python_min", "python_max", "index_url", "lock", "verify_script", "verify_user"), ""),
    **{name: [] for name in ("constraints", "extra_index_urls", "find_links", "pip_args", "libraries")},
    **{"wheels": {}, "verify_environment": {}, "interpreter": "python3", "no_index": False, "verify": False},
    **{"min_free_mb": 0, "verify_timeout": 0},
}

# Upper bound for reading a data set, in seconds; its role reads a larger one.
_DATA_LIMIT_S = 60


def can_install(
    *,
    requests: Mapping[str, Mapping[str, Any]],
    pip: str = "",
    locked: Mapping[str, Any] | None = None,
    sharing: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return `findings` on requests by part, `files` that the controller must send, and whether to ask an index.

    `seen` has the complete parts with the result of the module python_environment, empty for data sets.

    A part may have `environment` (arguments of the module python_environment) with `prefix` (of its variables) and
    `manage_system`; `system` (what the role may not install: `file` as for python_environment.missing_from_system,
    `packages` by family, and `unless`, a path that exists where it is needed no more); `apt` (arguments of
    apt_offers.findings); `data` (`root`, `owner`, and `sets` for the module training_data); and `sources`, each with
    `what` (its name), `variables`, `unless` (a pattern of paths below the part's `root` that exist when it is
    installed), and a `url`, or none where the controller sends it. `pip` is pip as a zip file in base64. Without it no
    index is read, and `asks_index` tells whether one is needed. `locked` are the arguments of locked_packages.findings.
    With `sharing`, `folders` has what this host knows of each (shared_folders.look).

    The `sources` and `system` of a part that is `built` concern one host for all of its `platform`: `builds` has their
    findings by part, if the build is not there (requested.build_findings).
    """
    found: list[Finding] = []
    works: list[tuple[str, Work]] = []
    needs: list[Need] = []
    files: list[str] = []
    seen: dict[str, dict[str, Any]] = {}
    to_build: dict[str, list[Finding]] = {}
    for name, part in requests.items():
        work = None
        if part.get("environment"):
            work, faults = _environment(name, part)
            found += faults
            needs += _of_environment(name, part, work) if work else []
            if work and not faults:
                works.append((str(part["prefix"]), work))
                seen |= {name: work.result()} if _is_complete(work, part["environment"]) else {}
        tools = _of_system(name, part, work)
        if part.get("data") and _is_data_complete(**part["data"]):
            seen[name] = {}
        root = Path(part.get("root") or "/")
        sources = [each for each in part.get("sources", ()) if not _there(root / each["unless"])]
        faults = [finding for source in sources for finding in _source(source)]
        files += [source["what"] for source in sources if not source.get("url")]
        if not part.get("built"):
            found += faults
            needs += tools
        elif sources:
            to_build[name] = [*faults, *needs_findings(tools, system_family())]
    found += needs_findings(needs, system_family())
    found += locked_packages.findings(**locked) if locked else []
    found += [finding for source in requested.by_source(requests) for finding in apt_offers.findings(**source)]
    waiting = [(prefix, work) for prefix, work in works if index_queries.to_ask(work)]
    if pip and waiting:
        with index_queries.unpacked(pip) as folder:
            for prefix, work in waiting:
                found += index_queries.findings(work, prefix, folder)
    answer = {"findings": [finding.as_dict() for finding in found], "files": files, "seen": seen}
    if any(part.get("built") for part in requests.values()):
        answer["platform"] = build_prefix.system()
        answer["builds"] = {name: [each.as_dict() for each in faults] for name, faults in to_build.items()}
    seen_folders = {"folders": shared_folders.look(**sharing)} if sharing else {}
    return {**answer, "asks_index": bool(waiting) and not pip, **seen_folders}


def _there(pattern: Path) -> bool:
    """Return whether something is at an absolute path, which may be a pattern with `**`.

    Links to folders are not followed there: /usr/lib/llvm-14/build has two that lead back, and 2^40 ways through them.
    """
    return any(Path(pattern.anchor).glob(str(pattern.relative_to(pattern.anchor))))


def _is_complete(work: Work, params: Mapping[str, Any]) -> bool:
    """Return whether the role of this environment would find nothing to do."""
    try:
        Verification("", params.get("verify_user", ""), 0).account()
    except EnvironmentFailure:
        return False
    return not work.reasons and not work.result()["lacking"]


def _is_data_complete(root: str, owner: str, sets: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether all data sets are as they were placed."""
    try:
        return not any(dataset_files.check(Path(root, each["name"]), owner, each, _DATA_LIMIT_S) for each in sets)
    except (JobError, OSError):
        return False


def _environment(name: str, part: Mapping[str, Any]) -> tuple[Work | None, list[Finding]]:
    # The account that verifies it may not exist yet.
    params = {**PLAIN, **part["environment"], "verify_user": ""}
    try:
        work = Work(params)
    except EnvironmentFailure as error:
        wrong = [Finding("Python", error.found, "an interpreter that runs", error.action)]
        return None, _of_part(wrong, name, part)
    faults = _of_part(work.findings, name, part)
    for package, address in params["wheels"].items() if work.install else ():
        variables = f"{part['prefix']}_{'wheel_url' if part['prefix'] in FRAMEWORKS else 'wheels'}"
        unfit = index_queries.unfit(work, package, address, variables)
        source = {"what": f"the wheel of {package}", "url": address, "variables": variables}
        faults += [unfit] if unfit else _source(source)
    return work, faults


def _of_environment(name: str, part: Mapping[str, Any], work: Work) -> list[Need]:
    """Return that Python's venv module is missing, which the role may not install."""
    python = work.interpreter
    if part.get("manage_system") or not work.remake or python.can_make_environments:
        return []
    # Debian and Ubuntu package ensurepip separately.
    package = {"Debian": f"python{python.minor[0]}.{python.minor[1]}-venv"}
    otherwise = f"name an interpreter that makes virtual environments ({part['prefix']}_interpreter)"
    return [Need(f"ensurepip of {python.executable}", name, package, otherwise)]


def _of_system(name: str, part: Mapping[str, Any], work: Work | None) -> list[Need]:
    """Return what is missing of what a role needs and may not install."""
    entries = {each["file"]: each for each in part.get("system", ()) if not _there(Path(each.get("unless") or "/-"))}
    missing = missing_from_system(list(entries), work.interpreter if work else None)
    return [Need(file, name, entries[file]["packages"]) for file in missing]


def _of_part(findings: Iterable[Finding], name: str, part: Mapping[str, Any]) -> list[Finding]:
    """Name the part in findings about its environment, and the variables that mend it.

    Those about Python also have where a fitting one comes from.
    """
    prefix = part["prefix"]
    least, most = (str(part["environment"].get(key) or "") for key in ("python_min", "python_max"))
    systems = ", ".join(systems_with(least, most)) or "none"
    hint = f": {prefix}_interpreter (supported systems with Python {least} to {most}: {systems})"
    hints = {"Python": hint if least and most else "", "source": f": {prefix}_find_links"}
    if prefix in FRAMEWORKS:
        hints |= {"environment": f": {prefix}_venv, {prefix}_root", "space": f": {prefix}_root"}
    return [
        replace(each, check=f"{each.check} of {name}", action=each.action + hints.get(each.check, ""))
        for each in findings
    ]


def _source(source: Mapping[str, Any]) -> Sequence[Finding]:
    url = str(source.get("url") or "")
    fault = addresses.fault(url) if url else ""
    if not fault:
        return []
    found = f"{without_password(url).partition('#')[0]}: {fault}"
    action = f"correct {source['variables']}, or bring the file there"
    if fault.startswith(addresses.NO_ANSWER):
        action = f"see how the node reaches it (name, proxy, firewall), or name another in {source['variables']}"
    return [Finding(f"source of {source['what']}", found, "an address from which the node can have it", action)]
