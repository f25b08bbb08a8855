# SPDX-License-Identifier: Apache-2.0
"""Which packages are cuDNN at a version, and what is wrong with a wanted one."""

from __future__ import annotations

import pytest
from ansible.module_utils.trainyard.nvidia.cudnn import Wanted, plan, problems
from ansible.module_utils.trainyard.software.mindspore import CUDAS

SUM = "5454a6fd94f008728caae9adad993c4e85ef36302e26bce43bea7d458a5e7b6d"


@pytest.mark.parametrize(
    ("version", "cuda", "packages", "wheel"),
    [
        ("7.6.5.32", "10.1", {"libcudnn7": "7.6.5.32-1+cuda10.1", "libcudnn7-dev": "7.6.5.32-1+cuda10.1"}, "10"),
        ("8.5.0.96", "11.7", {"libcudnn8": "8.5.0.96-1+cuda11.7", "libcudnn8-dev": "8.5.0.96-1+cuda11.7"}, "11"),
        (
            "9.5.1.17",
            "12.6",
            {
                "libcudnn9-cuda-12": "9.5.1.17-1",
                "libcudnn9-headers-cuda-12": "9.5.1.17-1",
                "libcudnn9-dev-cuda-12": "9.5.1.17-1",
            },
            "12",
        ),
    ],
)
def test_its_packages_and_its_wheel(version, cuda, packages, wheel):
    wanted = Wanted("network_repo", version, cuda)
    assert list(problems(wanted)) == []
    planned = plan(wanted)
    assert {each["name"]: each["version"] for each in planned["packages"]} == packages
    assert planned["wheel"] == f"nvidia-cudnn-cu{wheel}=={version}"


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (Wanted("none"), []),
        (Wanted("wheel", "8.5.0.96", "11.7"), []),
        (Wanted("wheel", "8.5.0.96", "11.6", manage_system=False), []),
        (Wanted("archive", "8.5.0.96", "11.7", url="https://x/y", sha256=SUM), []),
        (Wanted("wheel", "8.5", "11.7"), ["cudnn_version is '8.5', expected an exact release with its build"]),
        (Wanted("wheel", "", ""), ["cudnn_version is ''", "cudnn_cuda is ''"]),
        (Wanted("wheel", "8.5.0.96", "11"), ["cudnn_cuda is '11', expected the CUDA release"]),
        (Wanted("archive", "8.5.0.96", "11.7", local_file="/x", sha256="y"), ["cudnn_sha256 is 'y', expected"]),
        (Wanted("archive", "8.5.0.96", "11.7", sha256=SUM), ["expected either cudnn_url or cudnn_local_file"]),
        (Wanted("archive", "8.5.0.96", "11.7", "a", "b", SUM), ["expected either cudnn_url or cudnn_local_file"]),
        (Wanted("wheel", "8.0.5.39", "11.1"), ["as a wheel, there are wheels from 8.5 on: take cudnn_provider"]),
        (Wanted("wheel", "7.6.5.32", "10.1"), ["as a wheel, for CUDA 10 there is none: take cudnn_provider: archive"]),
        (Wanted("network_repo", "8.5.0.96", "11.7", manage_system=False), ["whose packages only root may install"]),
    ],
)
def test_what_is_wrong_with_a_wanted_one(wanted, said):
    found = list(problems(wanted))
    assert len(found) == len(said)
    for text, part in zip(found, said):
        assert part in text


def test_every_cudnn_that_mindspore_was_built_with_can_be_named():
    versions = {"7.6": "7.6.5.32", "8.0": "8.0.5.39", "8.5": "8.5.0.96"}
    for cuda, wanted in CUDAS.items():
        asked = Wanted("archive", versions[wanted.cudnn], cuda, url="https://x/y", sha256=SUM)
        assert list(problems(asked)) == []
