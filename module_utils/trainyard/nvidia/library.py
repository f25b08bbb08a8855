# SPDX-License-Identifier: Apache-2.0
"""NCCL and cuDNN on the nodes: how they report their version, the links of their home, and the check of all nodes.

A state is what library/nvidia_library returns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..base.findings import Finding
from ..base.majority import unlike_most

if TYPE_CHECKING:
    from mmap import mmap

State = Mapping[str, Any]
# The driver's library, which no toolkit brings.
DRIVER = "libcuda.so.1"


class Library(NamedTuple):
    """One library, as its vendor packs it."""

    name: str
    title: str
    # Headers that may define its version, in the order in which they are tried, and the names of its three numbers.
    headers: tuple[str, ...]
    numbers: tuple[str, str, str]
    # Providers whose packages name the exact CUDA release; for the others only its major number counts.
    exact_cuda: tuple[str, ...]
    # How many numbers a release has, and examples for messages.
    version_numbers: int
    example_version: str
    example_cuda: str
    example_archive: str
    # MB that must be free before the wheel is installed.
    wheel_mb: int
    # The first release that has a wheel, by CUDA's major release. Empty where nvidia_stack compares it (nccl_sources).
    first_wheels: Mapping[str, tuple[int, int]]

    def version_text(self, code: int) -> str:
        """Return the version that a library reports as a number: 20908 is 2.9.8, and on the older scale 8500 is 8.5.0.

        NCCL changed the scale with 2.9, cuDNN with 9.0.
        """
        scale = 10000 if code >= 10000 else 1000
        return f"{code // scale}.{code % scale // 100}.{code % 100}"

    def header_version(self, text: str) -> str:
        """Return the version that a header defines, empty where it defines none."""
        found = dict(re.findall(rf"^#define ({'|'.join(self.numbers)})\s+(\d+)", text, re.MULTILINE))
        return ".".join(found[name] for name in self.numbers) if len(found) == 3 else ""

    def home_links(self, files: Sequence[str]) -> dict[str, str]:
        """Return the links of a home, by path in it: headers below include/, libraries below lib/.

        `files` are those of a package or below a prefix. Wheels have no lib<name>.so, which the linker needs; packages
        of cuDNN name their headers cudnn_v8.h and leave cudnn.h to the system's alternatives.
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

    def missing(self, links: Mapping[str, str]) -> list[str]:
        """Return what programs need in a home to be built and to run, and these links do not have."""
        missing = [name for name in (f"include/{self.name}.h", f"lib/lib{self.name}.so") if name not in links]
        if not any(re.fullmatch(rf"lib/lib{self.name}\.so\.\d+", name) for name in links):
            missing.append(f"lib/lib{self.name}.so.N")
        return missing

    def in_cache(self, listing: str) -> list[str]:
        """Return the paths of this library that `ldconfig -p` lists."""
        return re.findall(rf"^\s*lib{self.name}\.so\.\d+ .*=> (\S+)$", listing, re.MULTILINE)


LIBRARIES: Mapping[str, Library] = {
    "nccl": Library(
        name="nccl",
        title="NCCL",
        headers=("nccl.h",),
        numbers=("NCCL_MAJOR", "NCCL_MINOR", "NCCL_PATCH"),
        exact_cuda=("network_repo", "archive"),
        version_numbers=3,
        example_version="2.21.5",
        example_cuda="12.4",
        example_archive="nccl_2.21.5-1+cuda12.4_x86_64.txz",
        wheel_mb=1000,
        first_wheels={},
    ),
    "cudnn": Library(
        name="cudnn",
        title="cuDNN",
        # Before cuDNN 8 the version stood in cudnn.h.
        headers=("cudnn_version.h", "cudnn.h"),
        numbers=("CUDNN_MAJOR", "CUDNN_MINOR", "CUDNN_PATCHLEVEL"),
        exact_cuda=(),
        version_numbers=4,
        example_version="8.5.0.96",
        example_cuda="11.7",
        example_archive="cudnn-linux-x86_64-8.5.0.96_cuda11-archive.tar.xz",
        # The wheel comes with cuBLAS.
        wheel_mb=4000,
        first_wheels={"11": (8, 5), "12": (8, 8), "13": (9, 12)},
    ),
}


def nccl_built_with(content: bytes | mmap) -> str:
    """Return the CUDA release that NCCL was built with, from the line that it prints when it starts."""
    match = re.search(rb"NCCL version \d+\.\d+\.\d+\+cuda(\d+\.\d+)", content)
    return match[1].decode() if match else ""


def cuda_text(code: int) -> str:
    """Return the release that a number of CUDA names: 11070 is 11.7, and 0 is empty."""
    return f"{code // 1000}.{code % 1000 // 10}" if code else ""


def remarks(library: Library, home: str, settings: Sequence[str], others: Sequence[str], unloaded: str) -> list[str]:
    """Return what can change the library for every program, and what was not compared, one sentence each.

    `settings` are files that configure NCCL, `others` further libraries that the loader knows. `unloaded` says why the
    library cannot be loaded where only the driver is missing.
    """
    return [
        *(f"{path} configures {library.title} for every program, regardless of the job" for path in settings),
        *(f"the loader also knows {path}: programs that do not name {home} may load it" for path in others),
        *([f"{unloaded}. Without the driver only the header is compared."] if unloaded else []),
    ]


def _check_node(library: Library, state: State, request: Mapping[str, Any]) -> Iterator[Finding]:
    home, title, name = state["home"], library.title, library.name
    again = "run site.yml again; if it stays so, see the role's provider"
    # On a host that is declared to have no GPU, no driver is expected: there the header alone is compared.
    unloaded = state["unloaded"]
    if state["kind"] != "ours" or state["error"] or (unloaded and str(request["gpus"]) != "0"):
        found = state["error"] or unloaded or f"nothing of this role at {home}"
        missing = re.search(r"Error: (lib\S+): cannot open", found)
        software = "NVIDIA driver (role nvidia_driver)" if DRIVER in found else "CUDA toolkit (role cuda_toolkit)"
        action = f"install the {software}, which has {missing[1]}, and {again}" if missing else again
        yield Finding(title, found, f"a library that can be loaded and a header below {home}", action)
        return
    # A library reports three numbers; the fourth of a cuDNN release names a build.
    version = ".".join(request["version"].split(".")[:3])
    installed = state["header"] if unloaded else state["version"]
    if version and installed != version:
        expected = f"{version}, as {name}_version says"
        yield Finding(f"version of {title}", f"{installed} ({state['library']})", expected, again)
    if state["header"] != installed:
        found = f"{name}.h is of {state['header'] or 'no version'}, the library of {state['version']}"
        expected = "one version for both, or programs are built for another library than they load"
        yield Finding(f"header of {title}", found, expected, f"remove the other {title}, or let this role install both")
    cuda, built = request["cuda"], state["cuda"]
    exact = request["provider"] in library.exact_cuda
    if cuda and built and (built if exact else built.split(".")[0]) != (cuda if exact else cuda.split(".")[0]):
        expected = cuda if exact else f"{cuda.split('.')[0]}.x"
        action = f"correct {name}_cuda, or take the build for it"
        yield Finding(f"CUDA that {title} was built with", built, expected, action)


def check_nodes(nodes: Sequence[Mapping[str, Any]], name: str) -> list[Finding]:
    """Return what is wrong with one library on nodes: each has its `state` and its `request`.

    A request has name, provider, version and cuda (either may be "": any), and gpus ("0": declared to have none). Nodes
    without a request of this name are left out.
    """
    library = LIBRARIES[name]
    title = library.title
    nodes = [node for node in nodes if node and node["request"]["name"] == name]
    states = [node["state"] for node in nodes]
    findings = [
        finding.on(state["host"])
        for state, node in zip(states, nodes)
        for finding in _check_node(library, state, node["request"])
    ]
    sound = [state for state in states if state["kind"] == "ours" and not state["error"]]
    action = f"set one {name}_provider, {name}_version and {name}_cuda for all nodes, and run site.yml again"
    for check, key in ((f"version of {title}", "version"), (f"CUDA that {title} was built with", "cuda")):
        if not any(finding.check == check for finding in findings):
            findings += unlike_most({state["host"]: state[key] for state in sound if state[key]}, check, action)
    return findings
