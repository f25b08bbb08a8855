# SPDX-License-Identifier: Apache-2.0
"""Check that this machine's apt still has the versions of a lock, before anything is touched; nothing is changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...trainyard.base.findings import Finding
from ...trainyard.bundle import held
from ...trainyard.software import apt_sources
from . import apt_calls


def findings(*, versions: Mapping[str, str], packages: Sequence[str], source: str) -> list[Finding]:
    """Return why the packages that are not installed, with all that they need, cannot be had in the locked versions.

    `source` is the text of the source that the machine is to get, "" for its own ones.
    """
    try:
        installed = apt_calls.read_installed().versions
        missing = [name for name in packages if name.partition("=")[0] not in installed]
        if not missing:
            return []
        error, simulated = apt_calls.would_install(missing, held.preferences(versions), source)
    except apt_calls.AptError as fault:
        return [Finding("lock", str(fault), "packages from apt", "repair apt, or run without the lock")]
    if error:
        return [apt_sources.explain_update(error, "the mirrors of this machine's apt")]
    return held.lacking(versions, missing, simulated.status, simulated.output)
