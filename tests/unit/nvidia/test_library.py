"""NCCL and cuDNN: the version that library and header report, the home, and the check of all nodes."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.nvidia import library as rules
from ansible.module_utils.trainyard.nvidia import nvidia_answers
from ansible.module_utils.trainyard_node.nvidia import library_files
from filters import declared, fitting

NCCL, CUDNN = rules.LIBRARIES["nccl"], rules.LIBRARIES["cudnn"]
STAND_IN = Path(__file__).resolve().parents[2] / "fixtures/nvidia_repository"
TRIPLET = f"{platform.machine()}-linux-gnu"
LIB = "/usr/lib/x86_64-linux-gnu"
# dpkg --listfiles of NVIDIA's packages 2.21.5; the same as Debian's. The wheel is 2.28.9.
PACKAGE_FILES = [
    *("/usr/include/nccl.h", LIB, f"{LIB}/libnccl.so", f"{LIB}/libnccl_static.a"),
    *(f"{LIB}/libnccl.so.2.21.5", f"{LIB}/libnccl.so.2", "/usr/share/doc/libnccl2/copyright"),
]
NCCL_H = "#define NCCL_MAJOR 2\n#define NCCL_MINOR 21\n#define NCCL_PATCH 5\n"
WHEEL = "/opt/trainyard/venvs/nccl/lib/python3.11/site-packages/nvidia/nccl"
WHEEL_FILES = ("include/nccl.h", "include/nccl_device", "lib/libnccl.so.2")


def test_version_numbers_become_text():
    assert [NCCL.version_text(code) for code in (22105, 2708, 20905)] == ["2.21.5", "2.7.8", "2.9.5"]
    assert [CUDNN.version_text(code) for code in (7605, 8500, 92801)] == ["7.6.5", "8.5.0", "9.28.1"]


def test_versions_of_headers_and_of_cuda():
    assert [rules.cuda_text(code) for code in (10010, 11070, 0)] == ["10.1", "11.7", ""]
    assert NCCL.header_version(NCCL_H) == "2.21.5"
    assert NCCL.header_version("#define NCCL_MAJOR 2\n#define NCCL_MINOR 28\n") == ""
    assert rules.nccl_built_with(b" %d\x00NCCL version 2.28.9+cuda13.0\x00%s\x00NCCL_MNNVL_UUID") == "13.0"
    assert rules.nccl_built_with(b"NCCL version mismatch with remote peer %s (local: %d") == ""


def test_homes_of_packages_and_wheels():
    libraries = ("libnccl.so", "libnccl_static.a", "libnccl.so.2.21.5", "libnccl.so.2")
    links = {f"lib/{name}": f"{LIB}/{name}" for name in libraries}
    assert NCCL.home_links(PACKAGE_FILES) == {"include/nccl.h": "/usr/include/nccl.h", **links}
    # A wheel has no link for the linker.
    links = {name: f"{WHEEL}/{name}" for name in WHEEL_FILES}
    assert NCCL.home_links(list(links.values())) == {**links, "lib/libnccl.so": "libnccl.so.2"}


# Files of libcudnn8 and libcudnn8-dev: cudnn.h and libcudnn.so are alternatives, made when they are installed.
CUDNN_PACKAGE_FILES = [
    "/usr/include/x86_64-linux-gnu/cudnn_v8.h",
    "/usr/include/x86_64-linux-gnu/cudnn_version_v8.h",
    *(f"{LIB}/{name}" for name in ("libcudnn.so.8", "libcudnn.so.8.5.0", "libcudnn_ops_infer.so.8")),
]


def test_home_of_cudnn_packages_has_the_names_that_programs_use():
    links = CUDNN.home_links(CUDNN_PACKAGE_FILES)
    assert links["include/cudnn.h"] == "/usr/include/x86_64-linux-gnu/cudnn_v8.h"
    assert links["lib/libcudnn.so"] == "libcudnn.so.8"
    assert links["lib/libcudnn_ops_infer.so.8"] == f"{LIB}/libcudnn_ops_infer.so.8"
    assert CUDNN.missing(links) == []
    assert CUDNN.missing(CUDNN.home_links(CUDNN_PACKAGE_FILES[:2])) == ["lib/libcudnn.so", "lib/libcudnn.so.N"]
    assert CUDNN.missing(CUDNN.home_links(CUDNN_PACKAGE_FILES[2:])) == ["include/cudnn.h"]
    assert len(CUDNN.missing(CUDNN.home_links(CUDNN_PACKAGE_FILES[-1:]))) == 3


def test_libraries_of_the_loaders_cache():
    found = [f"{LIB}/libnccl.so.2", f"{LIB}/libnccl.so", "/usr/local/lib/libnccl.so.2"]
    lines = [f"\t{path.rpartition('/')[2]} (libc6,x86-64) => {path}\n" for path in found]
    assert NCCL.in_cache(f"1234 libs found in cache `/etc/ld.so.cache'\n{''.join(lines)}") == [found[0], found[2]]


def test_remarks_name_files_other_libraries_and_a_missing_driver():
    named = ["/etc/nccl.conf", "/usr/lib/libnccl.so.2", "no libcuda.so.1"]
    lines = rules.remarks(NCCL, "/opt/trainyard/nccl", named[:1], named[1:2], named[2])
    assert all(name in line for name, line in zip(named, lines))


def state(host, version="2.21.5", cuda="12.4", **changes):
    found = {
        **{"host": host, "home": "/opt/trainyard/nccl", "kind": "ours", "version": version, "header": version},
        **{"cuda": cuda, "library": f"/usr/lib/libnccl.so.{version}", "error": "", "unloaded": ""},
        **changes,
    }
    return declared({"state": found, "request": {}}, nvidia_answers.LIBRARY_NODE)["state"]


def nccl(provider="network_repo", version="2.21.5", cuda="12.4"):
    return {"name": "nccl", "provider": provider, "version": version, "cuda": cuda, "gpus": "auto"}


def check(states, request):
    nodes = [{"state": each, "request": request} for each in states]
    others = [{}, {"state": state("n9"), "request": {**request, "name": "other"}}]
    return rules.check_nodes([*nodes, *others], request["name"])


@pytest.mark.parametrize(
    ("odd", "request_", "found"),
    [
        ({}, nccl(), []),
        ({"version": "2.20.5"}, nccl(), [("version of NCCL", "/usr/lib/libnccl.so.2.20.5")]),
        ({"version": "2.20.5"}, nccl(version=""), [("version of NCCL", "2.20.5")]),
        ({"header": "2.18.3"}, nccl(), [("header of NCCL", "2.18.3")]),
        ({"cuda": "12.2"}, nccl(), [("CUDA that NCCL was built with", "12.2")]),
        # A wheel is for all of CUDA 12, but all nodes have the same wheel.
        ({"cuda": "12.2"}, nccl("wheel"), [("CUDA that NCCL was built with", "12.2")]),
        ({"cuda": ""}, nccl(), []),
        ({"kind": "none"}, nccl(), [("NCCL", "nothing of this role at /opt/trainyard/nccl")]),
        ({"error": "cannot be loaded: x"}, nccl(), [("NCCL", "cannot be loaded: x")]),
    ],
)
def test_one_odd_node(odd, request_, found):
    findings = check([state("n1"), state("n2", **odd), state("n3")], request_)
    assert [(finding.check, finding.host) for finding in findings] == [(name, "n2") for name, _ in found]
    assert all(text in finding.found for finding, (_, text) in zip(findings, found))


def test_a_wheel_may_be_built_with_another_minor_release_of_cuda():
    for cuda, count in (("12.4", 0), ("13.0", 2)):
        assert len(check([state("n1", cuda="12.9"), state("n2", cuda="12.9")], nccl("wheel", cuda=cuda))) == count


CUBLAS = "Could not load library libcudnn_ops_infer.so.8. Error: libcublas.so.11: cannot open shared object file"
DRIVER = "Could not load library libcudnn_ops_infer.so.8. Error: libcuda.so.1: cannot open shared object file"


@pytest.mark.parametrize(
    ("odd", "gpus", "found", "action"),
    [
        ({"cuda": "10.2"}, "auto", ["CUDA that cuDNN was built with"], "correct cudnn_cuda"),
        ({"error": CUBLAS}, "0", ["cuDNN"], "install the CUDA toolkit (role cuda_toolkit), which has libcublas.so.11"),
        (
            {"unloaded": DRIVER},
            "auto",
            ["cuDNN"],
            "install the NVIDIA driver (role nvidia_driver), which has libcuda.so.1",
        ),
        # A host that is declared to have no GPU has no driver.
        ({"version": "", "cuda": "", "unloaded": DRIVER}, "0", [], ""),
        ({"version": "", "cuda": "", "unloaded": DRIVER, "header": "8.4.1"}, "0", ["version of cuDNN"], "run site.yml"),
    ],
)
def test_one_odd_cudnn(odd, gpus, found, action):
    request = {"name": "cudnn", "provider": "wheel", "version": "8.5.0.96", "cuda": "11.6", "gpus": gpus}
    findings = check([state("n1", "8.5.0", "11.7"), {**state("n2", "8.5.0", "11.7"), **odd}], request)
    assert [(finding.check, finding.host) for finding in findings] == [(name, "n2") for name in found]
    assert not findings or findings[0].action.startswith(action)


@pytest.fixture
def fakes(monkeypatch):
    """The module that builds libraries which report a version."""
    monkeypatch.syspath_prepend(str(STAND_IN))
    monkeypatch.delitem(sys.modules, "library", raising=False)
    import library

    return library


def installed(folder, library, code, headers):
    """Return a prefix like that of an archive."""
    (folder / "lib").mkdir(parents=True)
    (folder / "include").mkdir()
    (folder / "lib" / library).write_bytes(code)
    for name, text in headers.items():
        (folder / "include" / name).write_text(text)
    return folder


@pytest.fixture
def prefix(tmp_path, fakes):
    """A prefix with a real library that answers ncclGetVersion."""
    code = fakes.nccl_library("2.21.5", "cuda12.4", TRIPLET)
    return installed(tmp_path / "prefix", "libnccl.so.2", code, {"nccl.h": NCCL_H})


def read(home):
    left = {"wheel": f"{home}-cu*", "archive": f"{home}-archive/*"}
    found = library_files.read_library("nccl", str(home), "nobody-here", left)
    return fitting({"state": found, "request": {}}, nvidia_answers.LIBRARY_NODE)["state"]


def test_a_library_is_read_through_its_home(prefix, tmp_path):
    home = tmp_path / "nccl"
    links = NCCL.home_links(library_files.files_of_prefix(str(prefix)))
    library_files.make_home(home, links, {"provider": "archive"})
    (tmp_path / "nccl-cu12").mkdir()
    found = read(home)
    assert (found["version"], found["header"], found["cuda"], found["error"]) == ("2.21.5", "2.21.5", "12.4", "")
    assert found["library"] == str(prefix / "lib/libnccl.so.2")
    assert found["left"] == {"wheel": [str(tmp_path / "nccl-cu12")], "archive": []}
    assert library_files.links_in(home) == links
    library_files.make_home(home, {"include/nccl.h": "/x"}, {})
    assert library_files.links_in(home) == {"include/nccl.h": "/x"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["nccl", "nccl-cu12", "prefix"]


def test_a_broken_library_is_an_error(prefix, tmp_path):
    (prefix / "lib/libnccl.so.2").write_bytes(b"\x7fELF nothing")
    library_files.make_home(tmp_path / "nccl", NCCL.home_links(library_files.files_of_prefix(str(prefix))), {})
    found = read(tmp_path / "nccl")
    assert found["error"].startswith(f"{prefix}/lib/libnccl.so.2 cannot be loaded: ")
    assert found["version"] == ""


def test_a_home_of_others_is_foreign(tmp_path):
    assert library_files.kind_of(tmp_path / "nccl") == "none"
    (tmp_path / "nccl").mkdir()
    assert read(tmp_path / "nccl")["kind"] == "foreign"
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    assert library_files.kind_of(tmp_path / "link") == "foreign"


def read_cudnn(tmp_path, code):
    version = "#define CUDNN_MAJOR 8\n#define CUDNN_MINOR 5\n#define CUDNN_PATCHLEVEL 0\n"
    headers = {"cudnn.h": '#include "cudnn_version.h"\n', "cudnn_version.h": version}
    folder = installed(tmp_path / "cudnn-archive", "libcudnn.so.8", code, headers)
    home = tmp_path / "cudnn"
    library_files.make_home(home, CUDNN.home_links(library_files.files_of_prefix(str(folder))), {"provider": "archive"})
    found = library_files.read_library("cudnn", str(home), "nobody-here", {})
    return fitting({"state": found, "request": {}}, nvidia_answers.LIBRARY_NODE)["state"]


def test_a_cudnn_is_read_through_its_home(tmp_path, fakes):
    found = read_cudnn(tmp_path, fakes.cudnn_library("8.5.0", "11.7", TRIPLET))
    assert (found["version"], found["header"], found["cuda"]) == ("8.5.0", "8.5.0", "11.7")
    assert found["error"] == found["unloaded"] == ""


def test_a_cudnn_that_lacks_only_the_driver_has_no_error(tmp_path, monkeypatch):
    monkeypatch.setattr(library_files, "query", lambda name, library: ("", "", DRIVER))
    found = read_cudnn(tmp_path, b"")
    assert (found["error"], found["unloaded"], found["header"]) == ("", DRIVER, "8.5.0")
    assert "only the header is compared" in found["remarks"][-1]
