"""OneFlow's catalog: which release there is, what it needs beside it, and what is too new for it."""

from pathlib import Path

import pytest
from ansible.module_utils.trainyard.software import oneflow

SUM = 64 * "0"
WHEEL = {"wheel_url": "https://x/y.whl", "wheel_sha256": SUM}


@pytest.mark.parametrize(
    "wanted",
    [
        {"version": "0.9.0"},
        {"version": "0.9.0", "packages": ["numpy==1.23.5", "protobuf==3.20.3", "pandas==2.0.3"]},
        {"version": "0.9.0", **WHEEL},
        {"version": "0.8.0"},
        {"version": "0.7.0+cu112", "places": ["https://release.oneflow.info"]},
        {"version": "1.0.0", **WHEEL},
        # A build that the catalog does not know, where somebody has it.
        {"version": "1.0.0+cu121", **WHEEL},
        {"version": "0.9.1.dev20240203+cu118", "python_min": "3.8", "python_max": "3.11", **WHEEL},
    ],
)
def test_what_exists_or_is_not_known_has_no_problem(wanted):
    assert list(oneflow.problems(oneflow.Wanted(**wanted))) == []


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"version": "latest"}, "oneflow_version is 'latest', expected an exact release such as 0.9.0."),
        (
            {"version": "0.9.1", "python_min": "3.8"},
            "OneFlow 0.9.1 is not known here: set oneflow_python_min and oneflow_python_max to the Pythons that it has "
            "wheels for, and name in oneflow_packages what it needs beside it. Known are: 0.5.0 for Python 3.8; 0.6.0 "
            "for Python 3.8 to 3.9; 0.7.0 for Python 3.8 to 3.10; 0.8.0 for Python 3.8 to 3.10; 0.9.0 for Python 3.8 "
            "to 3.10; 1.0.0 for Python 3.8 to 3.11.",
        ),
        (
            {"version": "0.9.0", "packages": ["numpy==1.24.0"]},
            "oneflow_packages has 'numpy==1.24.0', but OneFlow 0.9.0 needs numpy below 1.24.",
        ),
        (
            {"version": "0.9.0", "packages": ["Protobuf == 3.21; python_version < '3.10'"]},
            "but OneFlow 0.9.0 needs protobuf below 3.21.",
        ),
        (
            {"version": "0.7.0"},
            "No package index has OneFlow 0.7.0: set oneflow_find_links: [https://release.oneflow.info] or a mirror, "
            "with one of its builds as oneflow_version (0.7.0+cu102, 0.7.0+cu112, 0.7.0+cpu), or oneflow_wheel_url",
        ),
        ({"version": "0.9.0+cu112"}, "No package index has OneFlow 0.9.0+cu112: set oneflow_find_links"),
        (
            {"version": "0.8.0+cu117", "places": ["/mnt/wheels"]},
            "oneflow_version is '0.8.0+cu117', but its known builds are 0.8.0+cu102, 0.8.0+cu112, 0.8.0+cpu; others "
            "by oneflow_wheel_url.",
        ),
        ({"version": "0.2.0"}, "OneFlow 0.2.0 is older than 0.5, with which this role's proof cannot speak."),
        ({"version": "0.4.0+cu102", **WHEEL}, "name it in job_venv; docs/job-file.md says how jobs run it"),
        ({"version": "0.8.0", "packages": ["numpy==1.26.4"]}, "but OneFlow 0.8.0 needs numpy below 1.24."),
        ({"version": "0.9.0", "wheel_url": "https://x/y.whl"}, "oneflow_wheel_sha256 is '', expected the 64 hexa"),
        ({"version": "0.9.0", "wheel_sha256": SUM}, "oneflow_wheel_sha256 is set without oneflow_wheel_url"),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(wanted, said):
    assert said in " ".join(oneflow.problems(oneflow.Wanted(**wanted)))


def test_everything_wrong_is_told_at_once():
    wanted = oneflow.Wanted("0.9.0", packages=["numpy==2.0.2", "protobuf==4.25.0"], wheel_sha256=SUM)
    assert len(list(oneflow.problems(wanted))) == 3


def test_the_libraries_of_cuda_come_along_on_every_node():
    assert oneflow.plan(oneflow.Wanted("0.9.0")) == {
        "pins": ["oneflow==0.9.0", "nvidia-cublas-cu11==11.10.3.66", "nvidia-cudnn-cu11==8.5.0.96"],
        "wheels": {},
        "python_min": "3.8",
        "python_max": "3.10",
    }


def test_builds_of_the_release_page_ask_for_cudas_libraries_themselves():
    planned = oneflow.plan(oneflow.Wanted("0.9.0+cu117", places=["https://release.oneflow.info"]))
    assert (planned["pins"], planned["python_max"]) == (["oneflow==0.9.0+cu117"], "3.10")
    # What the index has of 0.8.0 holds them.
    assert oneflow.plan(oneflow.Wanted("0.8.0"))["pins"] == ["oneflow==0.8.0"]


def test_the_readme_lists_the_catalog():
    readme = (Path(__file__).parents[3] / "roles/oneflow/README.md").read_text()
    for name, release in oneflow.RELEASES.items():
        (row,) = (line for line in readme.splitlines() if line.startswith(f"| {name} |"))
        assert ("index" in row) == release.in_index and f"{release.pythons[1]} |" in row
        assert "the same" in row or all(build in row for build in release.builds)


def test_a_release_that_is_not_known_brings_what_it_is_given():
    planned = oneflow.plan(oneflow.Wanted("0.9.1", python_min="3.8", python_max="3.11", **WHEEL))
    assert planned == {
        "pins": ["oneflow==0.9.1"],
        "wheels": {"oneflow": f"https://x/y.whl#sha256={SUM}"},
        "python_min": "3.8",
        "python_max": "3.11",
    }
