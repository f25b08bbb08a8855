# SPDX-License-Identifier: Apache-2.0
"""How a version of NCCL or cuDNN is installed, and the errors of a request."""

from __future__ import annotations

import pytest
from ansible.module_utils.trainyard.nvidia.library_plan import plan
from ansible.module_utils.trainyard.software.mindspore_releases import CUDAS

SUM = "5454a6fd94f008728caae9adad993c4e85ef36302e26bce43bea7d458a5e7b6d"
PIP = {"interpreter": "python3", "index_url": "", "extra_index_urls": [], "find_links": [], "no_index": False}


def request(name, provider, version="", cuda="", **changes):
    packages = ["libnccl2", "libnccl-dev"] if name == "nccl" else []
    given = {"name": name, "provider": provider, "version": version, "cuda": cuda, "packages": packages, **changes}
    return {"root": "/opt/t", "manage_system": True, "pip": PIP, "url": "", "local_file": "", "sha256": "", **given}


def nccl(*given, **changes):
    return request("nccl", *given, **changes)


def cudnn(*given, **changes):
    return request("cudnn", *given, **changes)


CUDNN_9 = ("libcudnn9-cuda-12", "libcudnn9-headers-cuda-12", "libcudnn9-dev-cuda-12")


@pytest.mark.parametrize(
    ("request_", "names", "version"),
    [
        (nccl("network_repo", "2.21.5", "12.4"), ("libnccl2", "libnccl-dev"), "2.21.5-1+cuda12.4"),
        (nccl("distro", "2.22.3"), ("libnccl2", "libnccl-dev"), "2.22.3"),
        (nccl("distro"), ("libnccl2", "libnccl-dev"), ""),
        (cudnn("network_repo", "8.5.0.96", "11.7"), ("libcudnn8", "libcudnn8-dev"), "8.5.0.96-1+cuda11.7"),
        (cudnn("network_repo", "9.5.1.17", "12.6"), CUDNN_9, "9.5.1.17-1"),
        (nccl("none"), (), ""),
    ],
)
def test_packages(request_, names, version):
    planned = plan(request_)
    assert planned["findings"] == []
    assert {each["name"]: each["version"] for each in planned["packages"]} == dict.fromkeys(names, version)
    assert [offer["names"] for offer in planned["offers"]] == [[name] for name in names[:1]]


@pytest.mark.parametrize(
    ("request_", "wheel", "venv"),
    [
        (nccl("wheel", "2.28.9", "13.0"), "nvidia-nccl-cu13==2.28.9", "/opt/t/venvs/nccl-cu13"),
        (cudnn("wheel", "8.5.0.96", "11.7"), "nvidia-cudnn-cu11==8.5.0.96", "/opt/t/venvs/cudnn-cu11"),
    ],
)
def test_wheel(request_, wheel, venv):
    planned = plan(request_)
    assert (planned["wheel"], planned["venv"]) == (wheel, venv)
    free_mb = {"nccl": 1000, "cudnn": 4000}[request_["name"]]
    assert planned["can_install"]["environment"] == {"path": venv, "packages": [wheel], "min_free_mb": free_mb, **PIP}


def test_archive():
    planned = plan(cudnn("archive", "8.5.0.96", "11.7", local_file="/srv/x.tar.xz", url="", sha256=SUM))
    (source,) = planned["can_install"]["sources"]
    assert (source["what"], source["local_file"], source["url"]) == ("cuDNN 8.5.0.96", "/srv/x.tar.xz", "")
    assert source["unless"] == f"/opt/t/cudnn-archive/{SUM[:12]}/include/cudnn.h"


ARCHIVE = {"url": "https://x/y", "sha256": SUM}


@pytest.mark.parametrize(
    ("request_", "parts"),
    [
        (nccl("wheel", "2.28.9", "13.0", manage_system=False), []),
        (nccl("archive", "2.20.5", "12.4", **ARCHIVE), []),
        (nccl("wheel", "2.21", "12.4"), ["nccl_version is '2.21'"]),
        (nccl("network_repo"), ["nccl_version is ''", "nccl_cuda is ''"]),
        (cudnn("wheel", "8.5", "11.7"), ["cudnn_version is '8.5'"]),
        (cudnn("wheel", "8.5.0.96", "11"), ["cudnn_cuda is '11'"]),
        (cudnn("archive", "8.5.0.96", "11.7", **{**ARCHIVE, "sha256": "y"}), ["cudnn_sha256 is 'y'"]),
        (cudnn("archive", "8.5.0.96", "11.7", sha256=SUM), ["cudnn_provider is archive"]),
        (nccl("archive", "2.20.5", "12.4", local_file="/x", **ARCHIVE), ["nccl_provider is archive"]),
        (cudnn("wheel", "8.0.5.39", "11.1"), ["no package index has cuDNN 8.0.5.39 for CUDA 11 as a wheel"]),
        (cudnn("wheel", "7.6.5.32", "10.1"), ["no package index has cuDNN 7.6.5.32 for CUDA 10 as a wheel"]),
        (nccl("distro", manage_system=False), ["nccl_provider is distro, and trainyard_manage_system is false"]),
    ],
)
def test_findings(request_, parts):
    planned = plan(request_)
    assert [finding["found"] for finding in planned["findings"]] == parts
    assert planned["can_install"]["findings"] == planned["findings"]
    assert not parts or (planned["packages"], planned["offers"], planned["can_install"]["environment"]) == ([], [], {})


def test_every_cudnn_that_mindspore_was_built_with_can_be_requested():
    versions = {"7.6": "7.6.5.32", "8.0": "8.0.5.39", "8.5": "8.5.0.96"}
    for cuda, build in CUDAS.items():
        assert plan(cudnn("archive", versions[build.cudnn], cuda, **ARCHIVE))["findings"] == []
