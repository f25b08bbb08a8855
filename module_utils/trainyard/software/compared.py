# SPDX-License-Identifier: Apache-2.0
"""Compare with the first host what others have of a framework: versions, the build of PyTorch, scripts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..base.findings import Finding


def version_findings(hosts: Sequence[Mapping[str, Any]], texts: Mapping[str, str], framework: str) -> list[Finding]:
    """Find hosts whose Python environment has other versions than the first host's.

    A host has its `name` and `python_runtime_result`; `texts` has by package how its version is shown (`torch %s`).
    Ranks of other versions may be wrong, fail, or hang in their first collective operation.
    """
    versions = {host["name"]: versions_in(host["python_runtime_result"], texts) for host in hosts}
    action = f"give all nodes one source of packages ({framework}_index_url), and run site.yml again for all of them"
    return list(_others("versions", versions, action))


def build_findings(hosts: Sequence[Mapping[str, Any]], cuda: str, build: str) -> Iterator[Finding]:
    """Yield the findings on hosts whose PyTorch is for another CUDA; `cuda` is "" for a build without CUDA."""
    for host in hosts:
        found = str((host["python_runtime_result"].get("verified") or {}).get("cuda", "unknown"))
        if cuda and found != cuda:
            expected = f"CUDA {cuda} of the build {build}"
            action = "name the index that has it in pytorch_builds_url, and run site.yml again"
            yield Finding("build of PyTorch", f"it is for CUDA {found}", expected, action, host["name"])


def script_findings(hosts: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """Yield the findings on scripts that differ from the first host's: `__oneflow_digests`, by path.

    Every node starts its own copy: a script that was edited on one node trains something else there.
    """
    action = "bring the same one to all nodes; a job's own scripts are best sent with it (job_source)"
    for path in sorted(hosts[0]["__oneflow_digests"]) if hosts else ():
        digests = {host["name"]: f"sha256 {host['__oneflow_digests'].get(path, 'missing')}" for host in hosts}
        yield from _others(path, digests, action)


def versions_in(environment: Mapping[str, Any], texts: Mapping[str, str]) -> str:
    """Return the texts with the versions of an environment's packages, and its Python."""
    found = [text % environment["packages"].get(name, "missing") for name, text in texts.items()]
    return ", ".join([*found, f"Python {'.'.join(environment['version'].split('.')[:2])}"])


def _others(check: str, values: Mapping[str, str], action: str) -> Iterator[Finding]:
    first = next(iter(values), "")
    for host, value in values.items():
        if value != values[first]:
            yield Finding(check, value, f"{values[first]}, as on {first}", action, host)
