"""OneFlow's catalog: which release there is, what it needs beside it, and what is too new for it."""

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
            "wheels for, and name in oneflow_packages what it needs beside it. Known are: 0.9.0 for Python 3.8 to 3.10",
        ),
        (
            {"version": "0.9.0", "packages": ["numpy==1.24.0"]},
            "oneflow_packages has 'numpy==1.24.0', but OneFlow 0.9.0 needs numpy below 1.24.",
        ),
        (
            {"version": "0.9.0", "packages": ["Protobuf == 3.21; python_version < '3.10'"]},
            "but OneFlow 0.9.0 needs protobuf below 3.21.",
        ),
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


def test_a_release_that_is_not_known_brings_what_it_is_given():
    planned = oneflow.plan(oneflow.Wanted("0.9.1", python_min="3.8", python_max="3.11", **WHEEL))
    assert planned == {
        "pins": ["oneflow==0.9.1"],
        "wheels": {"oneflow": f"https://x/y.whl#sha256={SUM}"},
        "python_min": "3.8",
        "python_max": "3.11",
    }
