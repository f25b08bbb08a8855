"""Why no wheel of a package fits a machine, by the names of the wheels."""

import pytest
from ansible.module_utils.trainyard.software.requirements import parse
from ansible.module_utils.trainyard.software.wheel_tags import Machine, read, why_not
from hypothesis import given
from hypothesis import strategies as st

TORCH = """
  Skipping link: none of the wheel's tags (cp311-cp311-manylinux_2_28_x86_64) are compatible (run pip debug --verbose):
 https://index.example.org/torch-2.13.0%2Bcpu-cp311-cp311-manylinux_2_28_x86_64.whl#sha256=00 (from x) (requires ...)
  Skipping link: https://index.example.org/torch-2.13.0-cp311-cp311-manylinux_2_28_aarch64.whl (from x)
  Skipping link: https://index.example.org/torch-2.13.0-cp312-cp312-manylinux_2_28_aarch64.whl (from x)
  Skipping link: https://index.example.org/torch-2.13.0-cp312-cp312-win_amd64.whl (from x)
  Skipping link: https://index.example.org/torch-2.6.0-cp311-cp311-manylinux1_x86_64.whl (from x)
"""


def reason(package, python="3.11", machine="x86_64", glibc=36, text=TORCH):
    version = tuple(int(part) for part in python.split("."))
    return why_not(parse(package, version), read(text), Machine(version, machine, glibc))


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ({"glibc": 17}, "the wheels of torch 2.13.0 need glibc 2.28 or newer, and this system has glibc 2.17"),
        ({"glibc": 27, "machine": "aarch64"}, "need glibc 2.28 or newer, and this system has glibc 2.27"),
        ({"glibc": None}, "the wheels of torch 2.13.0 need glibc, and this system has another C library"),
        ({"python": "3.9"}, "the wheels of torch 2.13.0 for x86_64 are for Python 3.11"),
        ({"python": "3.9", "machine": "aarch64"}, "for aarch64 are for Python 3.11 and 3.12"),
        ({"machine": "riscv64"}, "the wheels of torch 2.13.0 are for aarch64, x86_64, and this machine is riscv64"),
        ({}, ""),
        ({"glibc": 28}, ""),
    ],
)
def test_the_first_thing_that_does_not_fit_is_named(host, text):
    assert reason("torch==2.13.0", **host).endswith(text)
    assert bool(reason("torch==2.13.0", **host)) is bool(text)


def test_old_names_of_platforms_have_their_glibc():
    for name, minor in (("manylinux1", 5), ("manylinux2010", 12), ("manylinux2014", 17), ("linux", 0)):
        text = f"a/x-1-cp311-cp311-{name}_x86_64.whl"
        assert reason("x==1", glibc=minor, text=text) == ""
        if minor:
            assert f"need glibc 2.{minor} or newer" in reason("x==1", glibc=minor - 1, text=text)
    # The oldest of several names counts.
    both = "numpy-2.4.1-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl"
    assert "need glibc 2.27 " in reason("numpy==2.4.1", glibc=17, text=both)


def test_wheels_of_every_machine_or_of_a_stable_interface_fit():
    assert reason("x==1", machine="riscv64", text="x-1-py3-none-any.whl") == ""
    assert reason("x==1", text="x-1-py2.py3-none-any.whl") == ""
    assert reason("x==1", python="3.14", text="x-1-cp39-abi3-manylinux2014_x86_64.whl") == ""
    assert "Python 3.14" in reason("x==1", text="x-1-cp314-cp314t-manylinux2014_x86_64.whl")
    assert "Python 3.12" in reason("x==1", python="3.11", text="x-1-cp312-abi3-manylinux2014_x86_64.whl")
    assert "for other systems than Linux" in reason("x==1", text="x-1-cp311-cp311-win_amd64.whl")


def test_nothing_is_said_of_a_version_without_wheels():
    assert reason("torch==2.99.0", glibc=5) == ""
    assert reason("torch==2.13.0", text="ERROR: No matching distribution found for torch") == ""


@given(st.text(max_size=300))
def test_whatever_pip_prints_is_read(text):
    reason("torch==2.13.0", text=f"{text}.whl {text}-1-cp311-{text}-any.whl")
