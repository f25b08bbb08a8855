# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's libraries on the nodes: what they say of themselves, where a home leads, and the judgement of all nodes.

Pure. A state is what library/nvidia_library_state returns of a node.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..findings.findings import Finding, host_list

State = Mapping[str, Any]
# What only the driver brings.
DRIVER = "libcuda.so.1"


class Library(NamedTuple):
    """One library, as its vendor packs it."""

    name: str
    title: str
    # Headers that define its version, the first that is there counts, and the names of its three numbers there.
    headers: tuple[str, ...]
    numbers: tuple[str, str, str]
    # Providers whose packages name the CUDA release they were built with; of the others only its major number counts.
    exact_cuda: tuple[str, ...]

    def version_text(self, code: int) -> str:
        """Write the number that the library answers: 20908 is 2.9.8, and where a thousand was the scale 8500 8.5.0.

        NCCL changed the scale with 2.9, cuDNN with 9.0.
        """
        scale = 10000 if code >= 10000 else 1000
        return f"{code // scale}.{code % scale // 100}.{code % 100}"

    def header_version(self, text: str) -> str:
        """Return the version that a header defines, empty where it defines none."""
        found = dict(re.findall(rf"^#define ({'|'.join(self.numbers)})\s+(\d+)", text, re.MULTILINE))
        return ".".join(found[name] for name in self.numbers) if len(found) == 3 else ""

    def home_links(self, files: Sequence[str]) -> dict[str, str]:
        """Return the links of a home, by path in it: headers under include/, libraries under lib/.

        `files`: those of a package or below a prefix. Wheels have no lib<name>.so, without which nothing can be
        linked; packages of cuDNN name their headers cudnn_v8.h and leave cudnn.h to an alternative of the system.
        """
        links: dict[str, str] = {}
        for path in files:
            header = re.search(r"/include/(?:[^/]+-linux-gnu/)?([^/]+)$", path)
            library = re.search(rf"lib{self.name}[^/]*\.(so(\.[\d.]+)?|a)$", path)
            if header and header[1].startswith(self.name):
                links[f"include/{header[1]}"] = path
            elif library:
                links[f"lib/{library[0]}"] = path
        for name, path in sorted(links.items()):
            if name.startswith("include/"):
                links.setdefault(re.sub(r"_v\d+\.h$", ".h", name), path)
        for name in sorted(links):
            if re.fullmatch(rf"lib/lib{self.name}\.so\.\d+", name):
                links.setdefault(f"lib/lib{self.name}.so", name.removeprefix("lib/"))
        return links

    def lacking(self, links: Mapping[str, str]) -> list[str]:
        """Return what a home with these links would lack for programs to be built on it and to run."""
        needed = [f"include/{self.name}.h", f"lib/lib{self.name}.so"]
        lacking = [name for name in needed if name not in links]
        if not any(re.fullmatch(rf"lib/lib{self.name}\.so\.\d+", name) for name in links):
            lacking.append(f"lib/lib{self.name}.so.N")
        return lacking

    def in_cache(self, listing: str) -> list[str]:
        """Return the paths of this library that `ldconfig -p` lists."""
        return re.findall(rf"^\s*lib{self.name}\.so\.\d+ .*=> (\S+)$", listing, re.MULTILINE)


LIBRARIES: Mapping[str, Library] = {
    library.name: library
    for library in (
        Library("nccl", "NCCL", ("nccl.h",), ("NCCL_MAJOR", "NCCL_MINOR", "NCCL_PATCH"), ("network_repo", "archive")),
        # Before 8 its version stood in cudnn.h.
        Library(
            "cudnn", "cuDNN", ("cudnn_version.h", "cudnn.h"), ("CUDNN_MAJOR", "CUDNN_MINOR", "CUDNN_PATCHLEVEL"), ()
        ),
    )
}


def nccl_built_with(strings: bytes) -> str:
    """Return the CUDA release that an NCCL was built with, from the line that it prints at its start."""
    match = re.search(rb"NCCL version \d+\.\d+\.\d+\+cuda(\d+\.\d+)", strings)
    return match[1].decode() if match else ""


def cuda_text(code: int) -> str:
    """Write the number by which CUDA names a release: 11070 is 11.7; nothing for 0."""
    return f"{code // 1000}.{code % 1000 // 10}" if code else ""


def _three(version: str) -> str:
    """Return the numbers of a version that a library answers: of cuDNN's four the last names a build."""
    return ".".join(version.split(".")[:3])


def _unequal(library: Library, states: Sequence[State], what: str, key: str) -> Iterator[Finding]:
    values = {state["host"]: state[key] for state in states if state[key]}
    usual, _ = Counter(values.values()).most_common(1)[0] if values else ("", 0)
    like = host_list([host for host, value in values.items() if value == usual])
    name = library.name
    for host, value in values.items():
        if value != usual:
            yield Finding(
                what,
                value,
                f"{usual}, as on {like}",
                f"give all nodes one {name}_provider, {name}_version and {name}_cuda, and run site.yml again",
                host=host,
            )


def _node(library: Library, node: Mapping[str, Any]) -> Iterator[Finding]:
    state, wanted = node["state"], node["wanted"]
    host, home, title, name = state["host"], state["home"], library.title, library.name
    again = "run site.yml again; see the role's provider if it stays so"
    # Where no driver is wanted, the header alone is compared.
    unasked = state["unasked"]
    if state["kind"] != "ours" or state["error"] or (unasked and str(wanted["gpus"]) != "0"):
        found = state["error"] or unasked or f"nothing of this role at {home}"
        missing = re.search(r"Error: (lib\S+): cannot open", found)
        yield Finding(
            title,
            found,
            f"a library that can be loaded and a header below {home}",
            _bring(missing[1], again) if missing else again,
            host=host,
        )
        return
    version = _three(wanted["version"])
    has = state["header"] if unasked else state["version"]
    if version and has != version:
        expected = f"{version}, as {name}_version says"
        yield Finding(f"version of {title}", f"{has} ({state['library']})", expected, again, host=host)
    if state["header"] != has:
        yield Finding(
            f"header of {title}",
            f"{name}.h is of {state['header'] or 'no version'}, the library of {state['version']}",
            "both of one version, or programs are built for another library than they load",
            f"remove the other {title}, or let this role install both",
            host=host,
        )
    cuda, built = wanted["cuda"], state["cuda"]
    exact = wanted["provider"] in library.exact_cuda
    if cuda and built and (built if exact else built.split(".")[0]) != (cuda if exact else cuda.split(".")[0]):
        yield Finding(
            f"CUDA that {title} was built with",
            built,
            cuda if exact else f"{cuda.split('.')[0]}.x",
            f"correct {name}_cuda, or take the build for it",
            host=host,
        )


def _bring(missing: str, again: str) -> str:
    """Say where a library comes from that another one needs."""
    if missing == DRIVER:
        return f"install the NVIDIA driver, which brings {missing} (role nvidia_driver), and {again}"
    return f"install the CUDA toolkit that has {missing} (role cuda_toolkit), and {again}"


def judge(library: Library, nodes: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """Judge nodes together, each by its `state` and what is `wanted` there.

    `wanted` has provider, version ("": any), cuda ("": any), and gpus: "0" where a host is declared to have none.
    """
    states = [node["state"] for node in nodes]
    sound = [state for state in states if state["kind"] == "ours" and not state["error"]]
    findings = [finding for node in nodes for finding in _node(library, node)]
    for check, key in (
        (f"version of {library.title}", "version"),
        (f"CUDA that {library.title} was built with", "cuda"),
    ):
        if not any(finding.check == check for finding in findings):
            findings += _unequal(library, sound, check, key)
    return findings
