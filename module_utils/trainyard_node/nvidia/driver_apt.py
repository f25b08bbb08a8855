# SPDX-License-Identifier: Apache-2.0
"""A driver's packages on this machine: which belong to one version, and the way back from half of one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ...trainyard.base.findings import Finding
from ...trainyard.nvidia import driver_packages
from ...trainyard.nvidia.driver import is_driver_package
from ...trainyard.nvidia.driver_packages import Request
from ...trainyard.nvidia.driver_plan import choose_version
from ...trainyard.software import apt
from ..machine.tree import Tree
from ..software.apt_calls import INSTALL_TIMEOUT, LOCK, AptError, read_installed, read_offers, simulate
from .driver_state import installed_packages


@contextmanager
def _preferring(upstream: str) -> Iterator[None]:
    """Have apt take one version of whatever belongs to the driver, despite pins and holds, for a simulation."""
    with tempfile.TemporaryDirectory(prefix="trainyard-apt-") as name:
        preferences = Path(name, "preferences")
        preferences.write_text(driver_packages.preferences(upstream))
        settings = Path(name, "apt.conf")
        settings.write_text(
            f'Dir::Etc::preferences "{preferences}";\n'
            # Pins and holds of the version that is there now.
            'Dir::Etc::preferencesparts "/dev/null";\nAPT::Ignore-Hold "true";\n'
        )
        before = os.environ.get("APT_CONFIG")
        os.environ["APT_CONFIG"] = str(settings)
        try:
            yield
        finally:
            if before is None:
                del os.environ["APT_CONFIG"]
            else:
                os.environ["APT_CONFIG"] = before


def resolve(request: Request, source: apt.Source) -> tuple[str, list[dict[str, str]], list[Finding]]:
    """Find the driver's version and all packages that belong to it: the requested ones, and what they depend on.

    NVIDIA's packages depend on one another with >=, so that apt would take the newest of all branches.
    Returns the version, the packages with name and version, and findings.
    """
    requested = {name for names in request.roots for name in names} | set(request.pinning)
    offers, _ = read_offers(sorted(requested))
    here = {name: [one.version for one in offers.get(name, ()) if source.offers(one)] for name in requested}
    upstream, chosen, findings = driver_packages.choose(request, here, str(source))
    if findings:
        return upstream, [], findings
    made = apt.Plan(install=[f"{name}={version}" if version else name for name, version in chosen.items()])
    with _preferring(upstream):
        status, simulation = simulate(made, recommends=False)
    if status:
        found = f"apt-get install {' '.join(made.install)} is not possible: {apt.reasons(simulation)}"
        action = "see `apt-get check`; remove what another driver has left"
        return upstream, [], [Finding("apt", found, f"packages of {upstream} that fit together", action)]
    changes = apt.read_transaction(simulation)
    gone = {change.name for change in changes if not change.new}
    # An installed package is no change, but belongs to the driver as well.
    after = {name: version for name, version in read_installed().versions.items() if name not in gone}
    after.update({change.name: change.new for change in changes if change.new})
    parts = {name: version for name, version in after.items() if is_driver_package(name)}
    chosen.update({name: version for name, version in parts.items() if apt.upstream(version) == upstream})
    # Packages on which nothing depends at a version would stay behind.
    behind, _ = read_offers(sorted(parts.keys() - chosen.keys()))
    for name, offered in behind.items():
        version = choose_version([one.version for one in offered if source.offers(one)], upstream, "")
        chosen.update({name: version} if version else {})
    return upstream, [{"name": name, "version": version} for name, version in sorted(chosen.items())], []


def missing(before: Mapping[str, str]) -> list[str]:
    """Return which of these packages no list offers at these versions, so that nothing could bring them back."""
    offers, _ = read_offers(sorted(before))
    return [
        f"{name} {version}"
        for name, version in sorted(before.items())
        if version not in {one.version for one in offers.get(name, ())}
    ]


def undo(tree: Tree, before: Mapping[str, str]) -> list[str]:
    """Restore the driver's packages to `before`, also from the middle of an installation.

    New packages are removed, others get their version back. Returns the changes; raises AptError with apt's message.
    """
    now = installed_packages(tree)
    fitting = {one["name"] for one in now if one["status"][1:2] == "i" and before.get(one["name"]) == one["version"]}
    changes = [f"{name}={version}" for name, version in sorted(before.items()) if name not in fitting]
    changes += [f"{one['name']}-" for one in now if one["name"] not in before]
    if not changes:
        return []
    options = ["--yes", "--purge", "--allow-downgrades", "--allow-change-held-packages", "--no-install-recommends"]
    argv = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", *options, *LOCK, "install", *changes]
    done = tree.command("apt-get", argv, INSTALL_TIMEOUT)
    if done is None or done.status:
        message = apt.reasons(done.output) if done else "apt-get is not installed"
        raise AptError(f"apt-get install {' '.join(changes)}: {message}")
    return changes
