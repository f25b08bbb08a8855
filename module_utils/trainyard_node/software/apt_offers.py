# SPDX-License-Identifier: Apache-2.0
"""Check that packages can be had at their versions, before apt knows their source; nothing is changed."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from typing import Any

from ...trainyard.base.findings import Finding
from ...trainyard.software import apt_sources
from ...trainyard.software.apt import Source, has, missing
from ...trainyard.software.words import WordError
from . import apt_calls
from .build_prefix import os_release


def findings(
    *,
    url: str,
    distro: str,
    arch: str,
    components: Sequence[str],
    origins: Sequence[str],
    packages: Sequence[Mapping[str, Any]],
) -> list[Finding]:
    """Return which packages (`names`, `version`, `begins`: apt.has) neither are installed nor can be had.

    They come from the flat repository `url`/`distro`/`arch`, or without `url` from `components` of the distribution's
    mirrors, as this machine names them. Empty `distro` and `arch` are those of this machine.
    """
    try:
        there = {name: [version] for name, version in apt_calls.read_installed().versions.items()}
        due = [one for one in packages if not has(one, there)]
        if not due:
            return []
        system = os_release()
        uri = f"{url.rstrip('/')}/{_folder(system, distro, arch)}" if url else ""
        source, names = Source(uri, tuple(origins)), sorted({name for one in due for name in one["names"]})
        if uri:
            text = apt_sources.unsigned_source(uri)
        else:
            offers, _ = apt_calls.read_offers(names)
            due = [one for one in due if missing([one], offers, source)]
            # As if they were not configured: the lists that are there may be old, or none.
            others = [target for target in apt_calls.targets() if target.get("component") not in components]
            codename = system.get("VERSION_CODENAME", "")
            text = apt_sources.component_sources(others, codename, components, origins, "", "") if due else ""
            if not text.strip("# \n"):
                return missing(due, offers, source)
        offers, error = apt_calls.offered_by(text, names)
    except (apt_calls.AptError, WordError) as fault:
        action = "take them another way (wheel, archive, runfile), or repair apt"
        return [Finding("apt", str(fault), "packages from apt", action)]
    return [apt_sources.explain_update(error, str(source))] if error else missing(due, offers, source)


def _folder(system: Mapping[str, str], distro: str, arch: str) -> str:
    """Return a folder of the vendor's repositories: debian12/x86_64, ubuntu2404/sbsa."""
    release = system.get("ID", "") + system.get("VERSION_ID", "").replace(".", "")
    machine = {"aarch64": "sbsa"}.get(platform.machine(), platform.machine())
    return f"{distro or release}/{arch or machine}"
