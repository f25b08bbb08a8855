"""NCCL: what library and header say, the home, and the judgement of all nodes."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.nvidia import nccl
from ansible.module_utils.trainyard_node.nvidia import nccl as node

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
    assert nccl.version_text(code) == text


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('#define NCCL_MAJOR 2\n#define NCCL_MINOR 28\n#define NCCL_PATCH 9\n#define NCCL_SUFFIX ""\n', "2.28.9"),
        ("#define NCCL_MAJOR 2\n#define NCCL_MINOR 28\n", ""),
        ("", ""),
    ],
)
def test_the_version_of_a_header(text, version):
    assert nccl.header_version(text) == version


@pytest.mark.parametrize(
    ("strings", "cuda"),
    [
        (b" %d\x00NCCL version 2.28.9+cuda13.0\x00%s\x00NCCL_MNNVL_UUID", "13.0"),
        (b"NCCL version mismatch with remote peer %s (local: %d", ""),
        (b"NCCL version 2.28.9 compiled with CUDA 13.0", ""),
    ],
)
def test_what_cuda_a_library_was_built_with(strings, cuda):
    assert nccl.built_with(strings) == cuda


def test_the_home_of_packages():
    assert nccl.home_links(PACKAGE_FILES) == {
        "include/nccl.h": "/usr/include/nccl.h",
        "include/nccl_net.h": "/usr/include/nccl_net.h",
        "lib/libnccl.so": "/usr/lib/x86_64-linux-gnu/libnccl.so",
        "lib/libnccl_static.a": "/usr/lib/x86_64-linux-gnu/libnccl_static.a",
        "lib/libnccl.so.2.21.5": "/usr/lib/x86_64-linux-gnu/libnccl.so.2.21.5",
        "lib/libnccl.so.2": "/usr/lib/x86_64-linux-gnu/libnccl.so.2",
    }


def test_the_home_of_a_wheel_has_the_link_that_a_linker_wants():
    assert nccl.home_links(WHEEL_FILES) == {
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
    assert nccl.libraries_in_cache(listing) == ["/lib/x86_64-linux-gnu/libnccl.so.2", "/usr/local/lib/libnccl.so.2"]


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
        **changes,
    }


def wanted(provider="network_repo", version="2.21.5", cuda="12.4"):
    return {"provider": provider, "version": version, "cuda": cuda}


def judged(states, asked):
    return nccl.judge([{"state": state, "wanted": asked} for state in states])


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
    return node.read_nccl("n1", str(home), "nobody-here", {"wheel": "/nonexistent", "archive": "/"})


def test_a_library_is_asked_through_the_home(prefix, tmp_path):
    home = tmp_path / "nccl"
    links = nccl.home_links(node.files_of_prefix(str(prefix)))
    node.make_home(home, links, {"provider": "archive"})
    found = read(home)
    assert (found["version"], found["header"], found["cuda"], found["error"]) == ("2.21.5", "2.21.5", "12.4", "")
    assert found["library"] == str(prefix / "lib/libnccl.so.2")
    assert found["left"] == ["archive"]
    assert node.links_in(home) == links
    node.make_home(home, {"include/nccl.h": "/x"}, {})
    assert node.links_in(home) == {"include/nccl.h": "/x"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["nccl", "prefix"]


def test_a_library_that_is_none_says_so(prefix, tmp_path):
    (prefix / "lib/libnccl.so.2").write_bytes(b"\x7fELF nothing")
    node.make_home(tmp_path / "nccl", nccl.home_links(node.files_of_prefix(str(prefix))), {})
    found = read(tmp_path / "nccl")
    assert found["error"].startswith(f"{tmp_path}/nccl/lib/libnccl.so cannot be loaded: ")
    assert found["version"] == ""


def test_what_another_has_made_is_foreign(tmp_path):
    assert node.kind_of(tmp_path / "nccl") == "none"
    (tmp_path / "nccl").mkdir()
    assert node.kind_of(tmp_path / "nccl") == "foreign"
    assert read(tmp_path / "nccl")["kind"] == "foreign"
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    assert node.kind_of(tmp_path / "link") == "foreign"
