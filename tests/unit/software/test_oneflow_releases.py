"""OneFlow's catalog: its releases, the packages that each needs, and those that are too new for it."""

from pathlib import Path

import pytest
from ansible.module_utils.trainyard.software import oneflow_releases

SUM = 64 * "0"
WHEEL = {"wheel_url": "https://x/y.whl", "wheel_sha256": SUM}


@pytest.mark.parametrize(
    "settings",
    [
        {"version": "0.9.0", "packages": ["numpy==1.23.5", "protobuf==3.20.3", "pandas==2.0.3"]},
        {"version": "0.9.0", **WHEEL},
        {"version": "0.7.0+cu112", "places": ["https://release.oneflow.info"]},
        # A build that the catalog does not know, from a wheel.
        {"version": "1.0.0+cu121", **WHEEL},
        {"version": "0.9.1.dev20240203+cu118", "python_min": "3.8", "python_max": "3.11", **WHEEL},
    ],
)
def test_a_possible_request_has_no_finding(settings):
    assert list(oneflow_releases.input_findings(oneflow_releases.Settings(**settings))) == []


@pytest.mark.parametrize(
    ("settings", "found", "named"),
    [
        ({"version": "latest"}, "oneflow_version is 'latest'", "0.9.0"),
        ({"version": "0.9.1", "python_min": "3.8"}, "OneFlow 0.9.1 is not known here", "0.6.0 for Python 3.8 to 3.9"),
        ({"version": "0.9.0", "packages": ["numpy==1.24.0"]}, "oneflow_packages has 'numpy==1.24.0'", "below 1.24"),
        ({"version": "0.9.0", "packages": ["Protobuf == 3.21"]}, "'Protobuf == 3.21'", "protobuf below 3.21"),
        ({"version": "0.7.0"}, "no package index has OneFlow 0.7.0", "0.7.0+cu102, 0.7.0+cu112, 0.7.0+cpu"),
        ({"version": "0.9.0+cu112"}, "no package index has OneFlow 0.9.0+cu112", ""),
        ({"version": "0.8.0+cu117", "places": ["/wheels"]}, "oneflow_version is '0.8.0+cu117'", "0.8.0+cu102"),
        ({"version": "0.4.0+cu102", **WHEEL}, "'0.4.0+cu102', which this role cannot verify", "0.5 or newer"),
        ({"version": "0.9.0", "wheel_url": "https://x/y.whl"}, "oneflow_wheel_sha256 is ''", "64 hexadecimal"),
        ({"version": "0.9.0", "wheel_sha256": SUM}, "oneflow_wheel_sha256 is set without oneflow_wheel_url", ""),
    ],
)
def test_an_impossible_request_names_the_possible_ones(settings, found, named):
    [finding] = oneflow_releases.input_findings(oneflow_releases.Settings(**settings))
    assert found in finding.found and named in finding.expected


def test_all_findings_come_at_once():
    settings = oneflow_releases.Settings("0.9.0", packages=["numpy==2.0.2", "protobuf==4.25.0"], wheel_sha256=SUM)
    assert len(list(oneflow_releases.input_findings(settings))) == 3


@pytest.mark.parametrize(
    ("version", "pins"),
    [
        # This wheel needs CUDA's libraries even on CPU, and does not depend on them.
        ("0.9.0", ["oneflow==0.9.0", "nvidia-cublas-cu11==11.10.3.66", "nvidia-cudnn-cu11==8.5.0.96"]),
        # Builds of the release page depend on them; the index's wheel of 0.8.0 holds them.
        ("0.9.0+cu117", ["oneflow==0.9.0+cu117"]),
        ("0.8.0", ["oneflow==0.8.0"]),
    ],
)
def test_the_packages_of_a_release(version, pins):
    planned = oneflow_releases.plan(oneflow_releases.Settings(version))
    assert (planned["pins"], planned["python_min"], planned["python_max"]) == (pins, "3.8", "3.10")


def test_an_unknown_release_uses_the_given_pythons_and_wheel():
    planned = oneflow_releases.plan(oneflow_releases.Settings("0.9.1", python_min="3.8", python_max="3.11", **WHEEL))
    assert planned["wheels"] == {"oneflow": f"https://x/y.whl#sha256={SUM}"}
    assert (planned["pins"], planned["python_max"]) == (["oneflow==0.9.1"], "3.11")


def test_the_readme_lists_the_catalog():
    readme = (Path(__file__).parents[3] / "roles/oneflow/README.md").read_text()
    for name, release in oneflow_releases.RELEASES.items():
        (row,) = (line for line in readme.splitlines() if line.startswith(f"| {name} |"))
        assert ("index" in row) == release.in_index and f"{release.pythons[1]} |" in row
        assert "the same" in row or all(build in row for build in release.builds)
