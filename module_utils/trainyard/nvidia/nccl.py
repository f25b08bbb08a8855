# SPDX-License-Identifier: Apache-2.0
"""NCCL on the nodes: what a library and a header say of themselves, where a home leads, and the judgement of all nodes.

Pure. A state is what library/nccl_state returns of a node.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..findings.findings import Finding, host_list

State = Mapping[str, Any]

# Providers whose packages name the CUDA release they were built with; of the others only its major number counts.
_EXACT_CUDA = ("network_repo", "archive")
_LIBRARY = re.compile(r"libnccl[^/]*\.(so(\.[\d.]+)?|a)$")


def version_text(code: int) -> str:
    """Write the number that ncclGetVersion gives: 2708 is 2.7.8, and from 2.9 on 20908 is 2.9.8."""
    scale = 10000 if code >= 10000 else 1000
    return f"{code // scale}.{code % scale // 100}.{code % 100}"


def header_version(text: str) -> str:
    """Return the version that nccl.h defines, empty where it defines none."""
    found = dict(re.findall(r"^#define NCCL_(MAJOR|MINOR|PATCH)\s+(\d+)", text, re.MULTILINE))
    return ".".join(found[name] for name in ("MAJOR", "MINOR", "PATCH")) if len(found) == 3 else ""


def built_with(strings: bytes) -> str:
    """Return the CUDA release that a library was built with, from the line that NCCL prints at its start."""
    match = re.search(rb"NCCL version \d+\.\d+\.\d+\+cuda(\d+\.\d+)", strings)
    return match[1].decode() if match else ""


def home_links(files: Sequence[str]) -> dict[str, str]:
    """Return the links of a home, by path in it: headers under include/, libraries under lib/.

    `files`: those of a package or below a prefix. Wheels have no libnccl.so, without which nothing can be linked.
    """
    links: dict[str, str] = {}
    for path in files:
        header = re.search(r"/include/([^/]+)$", path)
        library = _LIBRARY.search(path)
        if header and header[1].startswith("nccl"):
            links[f"include/{header[1]}"] = path
        elif library:
            links[f"lib/{library[0]}"] = path
    if "lib/libnccl.so.2" in links:
        links.setdefault("lib/libnccl.so", "libnccl.so.2")
    return links


def libraries_in_cache(listing: str) -> list[str]:
    """Return the paths of libnccl.so.2 that `ldconfig -p` lists."""
    return re.findall(r"^\s*libnccl\.so\.2 .*=> (\S+)$", listing, re.MULTILINE)


def _unequal(states: Sequence[State], what: str, key: str) -> Iterator[Finding]:
    values = {state["host"]: state[key] for state in states if state[key]}
    usual, _ = Counter(values.values()).most_common(1)[0] if values else ("", 0)
    like = host_list([host for host, value in values.items() if value == usual])
    for host, value in values.items():
        if value != usual:
            yield Finding(
                host=host,
                check=what,
                found=value,
                expected=f"{usual}, as on {like}",
                action="give all nodes one nccl_provider, nccl_version and nccl_cuda, and run site.yml again",
            )


def _node(state: State, wanted: Mapping[str, str]) -> Iterator[Finding]:
    host, home = state["host"], state["home"]
    again = "run site.yml again; see the role's provider if it stays so"
    if state["kind"] != "ours" or state["error"]:
        found = state["error"] or f"nothing of this role at {home}"
        yield Finding(
            host=host,
            check="NCCL",
            found=found,
            expected=f"a library that can be loaded and a header below {home}",
            action=again,
        )
        return
    version = wanted["version"]
    if version and state["version"] != version:
        expected = f"{version}, as nccl_version says"
        yield Finding(
            host=host,
            check="version of NCCL",
            found=f"{state['version']} ({state['library']})",
            expected=expected,
            action=again,
        )
    if state["header"] != state["version"]:
        yield Finding(
            host=host,
            check="header of NCCL",
            found=f"nccl.h is of {state['header'] or 'no version'}, the library of {state['version']}",
            expected="both of one version, or programs are built for another library than they load",
            action="remove the other NCCL, or let this role install both",
        )
    cuda, built = wanted["cuda"], state["cuda"]
    exact = wanted["provider"] in _EXACT_CUDA
    if cuda and built and (built if exact else built.split(".")[0]) != (cuda if exact else cuda.split(".")[0]):
        yield Finding(
            host=host,
            check="CUDA that NCCL was built with",
            found=built,
            expected=cuda if exact else f"{cuda.split('.')[0]}.x",
            action="correct nccl_cuda, or take the build for it",
        )


def judge(nodes: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """Judge nodes together, each by its `state` and what is `wanted`: provider, version ("": any), cuda ("": any)."""
    states = [node["state"] for node in nodes]
    sound = [state for state in states if state["kind"] == "ours" and not state["error"]]
    findings = [finding for node in nodes for finding in _node(node["state"], node["wanted"])]
    if not any(finding.check == "version of NCCL" for finding in findings):
        findings += _unequal(sound, "version of NCCL", "version")
    if not any(finding.check == "CUDA that NCCL was built with" for finding in findings):
        findings += _unequal(sound, "CUDA that NCCL was built with", "cuda")
    return findings
