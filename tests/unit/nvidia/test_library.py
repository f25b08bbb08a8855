"""NCCL and cuDNN: what library and header say, the home, and the judgement of all nodes."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.nvidia import library as rules
from ansible.module_utils.trainyard_node.nvidia import library as node

NCCL, CUDNN = rules.LIBRARIES["nccl"], rules.LIBRARIES["cudnn"]
STAND_IN = Path(__file__).resolve().parents[2] / "fixtures/nvidia_repository"
TRIPLET = f"{platform.machine()}-linux-gnu"
# dpkg --listfiles of NVIDIA's packages 2.21.5; of Debian's the same, of the wheel 2.28.9.
PACKAGE_FILES = [
    "/.",
    "/usr",
    "/usr/include",
    "/usr/include/nccl.h",
    "/usr/include/nccl_net.h",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu/libnccl.so",
    "/usr/lib/x86_64-linux-gnu/libnccl_static.a",
    "/usr/lib/x86_64-linux-gnu/libnccl.so.2.21.5",
    "/usr/lib/x86_64-linux-gnu/libnccl.so.2",
    "/usr/share/doc/libnccl2/copyright",
    "/usr/share/lintian/overrides/libnccl2",
]
WHEEL = "/opt/trainyard/venvs/nccl/lib/python3.11/site-packages/nvidia/nccl"
WHEEL_FILES = [f"{WHEEL}/{name}" for name in ("include/nccl.h", "include/nccl_device", "lib/libnccl.so.2")]


@pytest.mark.parametrize(
    ("code", "text"), [(22105, "2.21.5"), (22809, "2.28.9"), (2708, "2.7.8"), (2408, "2.4.8"), (20905, "2.9.5")]
)
def test_the_number_of_a_version(code, text):
    assert NCCL.version_text(code) == text


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('#define NCCL_MAJOR 2\n#define NCCL_MINOR 28\n#define NCCL_PATCH 9\n#define NCCL_SUFFIX ""\n', "2.28.9"),
        ("#define NCCL_MAJOR 2\n#define NCCL_MINOR 28\n", ""),
        ("", ""),
    ],
)
def test_the_version_of_a_header(text, version):
    assert NCCL.header_version(text) == version


@pytest.mark.parametrize(
    ("strings", "cuda"),
    [
        (b" %d\x00NCCL version 2.28.9+cuda13.0\x00%s\x00NCCL_MNNVL_UUID", "13.0"),
        (b"NCCL version mismatch with remote peer %s (local: %d", ""),
        (b"NCCL version 2.28.9 compiled with CUDA 13.0", ""),
    ],
)
def test_what_cuda_a_library_was_built_with(strings, cuda):
    assert rules.nccl_built_with(strings) == cuda


def test_the_home_of_packages():
    assert NCCL.home_links(PACKAGE_FILES) == {
        "include/nccl.h": "/usr/include/nccl.h",
        "include/nccl_net.h": "/usr/include/nccl_net.h",
        "lib/libnccl.so": "/usr/lib/x86_64-linux-gnu/libnccl.so",
        "lib/libnccl_static.a": "/usr/lib/x86_64-linux-gnu/libnccl_static.a",
        "lib/libnccl.so.2.21.5": "/usr/lib/x86_64-linux-gnu/libnccl.so.2.21.5",
        "lib/libnccl.so.2": "/usr/lib/x86_64-linux-gnu/libnccl.so.2",
    }


def test_the_home_of_a_wheel_has_the_link_that_a_linker_wants():
    assert NCCL.home_links(WHEEL_FILES) == {
        "include/nccl.h": f"{WHEEL}/include/nccl.h",
        "include/nccl_device": f"{WHEEL}/include/nccl_device",
        "lib/libnccl.so.2": f"{WHEEL}/lib/libnccl.so.2",
        "lib/libnccl.so": "libnccl.so.2",
    }


def test_libraries_that_the_loader_knows():
    listing = """\
1234 libs found in cache `/etc/ld.so.cache'
\tlibnccl.so.2 (libc6,x86-64) => /lib/x86_64-linux-gnu/libnccl.so.2
\tlibnccl.so (libc6,x86-64) => /lib/x86_64-linux-gnu/libnccl.so
\tlibnccl.so.2 (libc6,x86-64) => /usr/local/lib/libnccl.so.2
"""
    assert NCCL.in_cache(listing) == ["/lib/x86_64-linux-gnu/libnccl.so.2", "/usr/local/lib/libnccl.so.2"]


def state(host, version="2.21.5", cuda="12.4", **changes):
    return {
        "host": host,
        "home": "/opt/trainyard/nccl",
        "kind": "ours",
        "version": version,
        "header": version,
        "cuda": cuda,
        "library": f"/usr/lib/libnccl.so.{version}",
        "error": "",
        "unasked": "",
        **changes,
    }


def wanted(provider="network_repo", version="2.21.5", cuda="12.4"):
    return {"provider": provider, "version": version, "cuda": cuda, "gpus": "auto"}


def judged(states, asked):
    return rules.judge(NCCL, [{"state": state, "wanted": asked} for state in states])


@pytest.mark.parametrize(
    ("odd", "asked", "found"),
    [
        ({}, wanted(), []),
        ({"version": "2.20.5"}, wanted(), [("version of NCCL", "2.20.5 (/usr/lib/libnccl.so.2.20.5)")]),
        ({"version": "2.20.5"}, wanted(version=""), [("version of NCCL", "2.20.5")]),
        ({"header": "2.18.3"}, wanted(), [("header of NCCL", "nccl.h is of 2.18.3, the library of 2.21.5")]),
        ({"header": ""}, wanted(), [("header of NCCL", "nccl.h is of no version, the library of 2.21.5")]),
        ({"cuda": "12.2"}, wanted(), [("CUDA that NCCL was built with", "12.2")]),
        # A wheel is for all of CUDA 12, yet it is one wheel for all nodes.
        ({"cuda": "12.2"}, wanted("wheel"), [("CUDA that NCCL was built with", "12.2")]),
        ({"cuda": ""}, wanted(), []),
        ({"kind": "none"}, wanted(), [("NCCL", "nothing of this role at /opt/trainyard/nccl")]),
        ({"error": "cannot be loaded: x"}, wanted(), [("NCCL", "cannot be loaded: x")]),
    ],
)
def test_what_is_found_of_one_odd_node(odd, asked, found):
    findings = judged([state("n1"), state("n2", **odd), state("n3")], asked)
    assert [(finding.check, finding.found) for finding in findings] == found
    assert {finding.host for finding in findings} <= {"n2"}


def test_a_wheel_may_be_of_another_minor_release_of_cuda():
    states = [state("n1", cuda="12.9"), state("n2", cuda="12.9")]
    assert judged(states, wanted("wheel")) == []
    assert [finding.check for finding in judged(states, wanted("wheel", cuda="13.0"))] == [
        "CUDA that NCCL was built with"
    ] * 2


@pytest.fixture
def prefix(tmp_path, monkeypatch):
    """A prefix as an archive has it, with a real library that answers to ncclGetVersion."""
    monkeypatch.syspath_prepend(str(STAND_IN))
    monkeypatch.delitem(sys.modules, "library", raising=False)
    import library

    folder = tmp_path / "prefix"
    (folder / "lib").mkdir(parents=True)
    (folder / "include").mkdir()
    (folder / "lib/libnccl.so.2").write_bytes(library.nccl_library("2.21.5", "cuda12.4", TRIPLET))
    (folder / "include/nccl.h").write_text("#define NCCL_MAJOR 2\n#define NCCL_MINOR 21\n#define NCCL_PATCH 5\n")
    return folder


def read(home):
    return node.read_library(
        "nccl", "n1", str(home), "nobody-here", {"wheel": f"{home}-cu*", "archive": f"{home}-archive/*"}
    )


def test_a_library_is_asked_through_the_home(prefix, tmp_path):
    home = tmp_path / "nccl"
    links = NCCL.home_links(node.files_of_prefix(str(prefix)))
    node.make_home(home, links, {"provider": "archive"})
    found = read(home)
    assert (found["version"], found["header"], found["cuda"], found["error"]) == ("2.21.5", "2.21.5", "12.4", "")
    assert found["library"] == str(prefix / "lib/libnccl.so.2")
    assert found["left"] == {"wheel": [], "archive": []}
    (tmp_path / "nccl-cu12").mkdir()
    assert read(home)["left"] == {"wheel": [str(tmp_path / "nccl-cu12")], "archive": []}
    (tmp_path / "nccl-cu12").rmdir()
    assert node.links_in(home) == links
    node.make_home(home, {"include/nccl.h": "/x"}, {})
    assert node.links_in(home) == {"include/nccl.h": "/x"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["nccl", "prefix"]


def test_a_library_that_is_none_says_so(prefix, tmp_path):
    (prefix / "lib/libnccl.so.2").write_bytes(b"\x7fELF nothing")
    node.make_home(tmp_path / "nccl", NCCL.home_links(node.files_of_prefix(str(prefix))), {})
    found = read(tmp_path / "nccl")
    assert found["error"].startswith(f"{prefix}/lib/libnccl.so.2 cannot be loaded: ")
    assert found["version"] == ""


def test_what_another_has_made_is_foreign(tmp_path):
    assert node.kind_of(tmp_path / "nccl") == "none"
    (tmp_path / "nccl").mkdir()
    assert node.kind_of(tmp_path / "nccl") == "foreign"
    assert read(tmp_path / "nccl")["kind"] == "foreign"
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    assert node.kind_of(tmp_path / "link") == "foreign"


@pytest.mark.parametrize(("code", "text"), [(7605, "7.6.5"), (8005, "8.0.5"), (8500, "8.5.0"), (92801, "9.28.1")])
def test_the_number_of_a_version_of_cudnn(code, text):
    assert CUDNN.version_text(code) == text


def test_the_cuda_that_a_number_names():
    assert [rules.cuda_text(code) for code in (10010, 11070, 13050, 0)] == ["10.1", "11.7", "13.5", ""]


# Files of libcudnn8 and libcudnn8-dev: cudnn.h and libcudnn.so are alternatives, made when they are installed.
CUDNN_PACKAGE_FILES = [
    "/usr/include/x86_64-linux-gnu/cudnn_v8.h",
    "/usr/include/x86_64-linux-gnu/cudnn_version_v8.h",
    "/usr/lib/x86_64-linux-gnu/libcudnn.so.8",
    "/usr/lib/x86_64-linux-gnu/libcudnn.so.8.5.0",
    "/usr/lib/x86_64-linux-gnu/libcudnn_ops_infer.so.8",
    "/usr/share/doc/libcudnn8/copyright",
]


def test_the_home_of_packages_of_cudnn_has_the_names_that_programs_ask_for():
    links = CUDNN.home_links(CUDNN_PACKAGE_FILES)
    assert links["include/cudnn.h"] == "/usr/include/x86_64-linux-gnu/cudnn_v8.h"
    assert links["include/cudnn_version.h"] == "/usr/include/x86_64-linux-gnu/cudnn_version_v8.h"
    assert links["lib/libcudnn.so"] == "libcudnn.so.8"
    assert links["lib/libcudnn_ops_infer.so.8"] == "/usr/lib/x86_64-linux-gnu/libcudnn_ops_infer.so.8"
    assert CUDNN.lacking(links) == []


@pytest.mark.parametrize(
    ("files", "lacking"),
    [
        (CUDNN_PACKAGE_FILES[:2], ["lib/libcudnn.so", "lib/libcudnn.so.N"]),
        (CUDNN_PACKAGE_FILES[2:], ["include/cudnn.h"]),
        (["/usr/lib/libcudnn_ops_infer.so.8"], ["include/cudnn.h", "lib/libcudnn.so", "lib/libcudnn.so.N"]),
    ],
)
def test_what_a_home_would_lack(files, lacking):
    assert CUDNN.lacking(CUDNN.home_links(files)) == lacking


CUBLAS = "Could not load library libcudnn_ops_infer.so.8. Error: libcublas.so.11: cannot open shared object file"
NVRTC = "Could not load library libcudnn_ops_infer.so.8. Error: libnvrtc.so: cannot open shared object file"
DRIVER = "Could not load library libcudnn_ops_infer.so.8. Error: libcuda.so.1: cannot open shared object file"


@pytest.mark.parametrize(
    ("odd", "gpus", "found"),
    [
        ({}, "auto", []),
        ({"version": "8.4.1", "header": "8.4.1"}, "auto", ["version of cuDNN"]),
        ({"header": "8.4.1"}, "auto", ["header of cuDNN"]),
        ({"cuda": "10.2"}, "auto", ["CUDA that cuDNN was built with"]),
        ({"version": "", "error": CUBLAS}, "0", ["cuDNN"]),
        ({"version": "", "cuda": "", "unasked": DRIVER}, "auto", ["cuDNN"]),
        # Who has no GPU on purpose has no driver.
        ({"version": "", "cuda": "", "unasked": DRIVER}, "0", []),
        ({"version": "", "cuda": "", "unasked": DRIVER, "header": "8.4.1"}, "0", ["version of cuDNN"]),
    ],
)
def test_what_is_found_of_one_odd_cudnn(odd, gpus, found):
    asked = {"provider": "wheel", "version": "8.5.0.96", "cuda": "11.6", "gpus": gpus}
    states = [
        state("n1", "8.5.0", "11.7"),
        state("n2", **{"version": "8.5.0", "header": "8.5.0", "cuda": "11.7", **odd}),
    ]
    findings = rules.judge(CUDNN, [{"state": each, "wanted": asked} for each in states])
    assert [finding.check for finding in findings] == found
    assert {finding.host for finding in findings} <= {"n2"}


def test_what_a_cudnn_lacks_is_said_with_who_brings_it():
    asked = {"provider": "wheel", "version": "8.5.0.96", "cuda": "11.6", "gpus": "8"}
    actions = [
        rules.judge(CUDNN, [{"state": state("n1", "", "", **odd), "wanted": asked}])[0].action
        for odd in ({"error": CUBLAS}, {"error": NVRTC}, {"unasked": DRIVER})
    ]
    assert actions[0].startswith("install the CUDA toolkit that has libcublas.so.11 (role cuda_toolkit)")
    assert actions[1].startswith("install the CUDA toolkit that has libnvrtc.so (role cuda_toolkit)")
    assert actions[2].startswith("install the NVIDIA driver, which brings libcuda.so.1 (role nvidia_driver)")


def cudnn_prefix(tmp_path, code):
    folder = tmp_path / "cudnn-archive"
    (folder / "lib").mkdir(parents=True)
    (folder / "include").mkdir()
    (folder / "lib/libcudnn.so.8").write_bytes(code)
    (folder / "include/cudnn.h").write_text('#include "cudnn_version.h"\n')
    (folder / "include/cudnn_version.h").write_text(
        "#define CUDNN_MAJOR 8\n#define CUDNN_MINOR 5\n#define CUDNN_PATCHLEVEL 0\n"
    )
    home = tmp_path / "cudnn"
    node.make_home(home, CUDNN.home_links(node.files_of_prefix(str(folder))), {"provider": "archive"})
    return node.read_library("cudnn", "n1", str(home), "nobody-here", {})


def test_a_cudnn_is_asked_through_the_home(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(STAND_IN))
    monkeypatch.delitem(sys.modules, "library", raising=False)
    import library

    found = cudnn_prefix(tmp_path, library.cudnn_library("8.5.0", "11.7", TRIPLET))
    assert (found["version"], found["header"], found["cuda"], found["error"]) == ("8.5.0", "8.5.0", "11.7", "")
    assert (found["settings"], found["unasked"]) == ({}, "")


def test_a_cudnn_that_misses_the_driver_alone_is_not_asked(tmp_path, monkeypatch):
    said = f"libcudnn.so.8 cannot be loaded: {DRIVER}"
    monkeypatch.setattr(node, "ask", lambda name, library: ("", "", said))
    found = cudnn_prefix(tmp_path, b"")
    assert (found["error"], found["unasked"], found["header"]) == ("", said, "8.5.0")
