"""Pinned requirements: their syntax, and the versions and wheels that meet them."""

import pytest
from ansible.module_utils.trainyard.cluster.survey import SUPPORTED
from ansible.module_utils.trainyard.software import requirements
from hypothesis import given
from hypothesis import strategies as st

PYTHON = (3, 11)


@pytest.mark.parametrize(
    "text",
    [
        *("numpy", "numpy>=2", "numpy==2.*", "numpy===2", "numpy==", "==2", "numpy==2,<3", "numpy==2; os_name == 'nt'"),
        *("numpy @ https://x/y.whl", "-r other.txt", "numpy==2 --hash=sha256:0", "numpy==2\nother"),
    ],
)
def test_a_requirement_without_a_pin_is_quoted(text):
    with pytest.raises(requirements.PinError) as refused:
        requirements.parse(text, PYTHON)
    assert repr(text) in str(refused.value)


@pytest.mark.parametrize(
    ("marker", "holds"),
    [
        ("< '3.11'", False),
        ("<= '3.11'", True),
        ("== '3.11'", True),
        ("!= '3.11'", False),
        ('>= "3.9"', True),
        ("> '3.9'", True),
        ("< '3.9'", False),
    ],
)
def test_a_marker_compares_numbers_not_text(marker, holds):
    assert (requirements.parse(f"numpy==2.4.6; python_version {marker}", PYTHON) is not None) == holds


@pytest.mark.parametrize("marker", ["", "; python_version >= '3.9'"])
def test_hashes_are_pips_and_no_part_of_the_name(marker):
    hashes = "".join(f" --hash=sha256:{digit * 64}" for digit in "0a")
    pin = requirements.parse(f"Numpy==2.4.6{marker}{hashes}", PYTHON)
    assert (pin.name, pin.version, pin.requirement, pin.hashes) == ("numpy", "2.4.6", "Numpy==2.4.6", hashes)


@pytest.mark.parametrize(
    ("pin", "installed", "accepted"),
    [
        ("torch==2.13.0", "2.13.0+cpu", True),
        ("torch==2.13.0+cpu", "2.13.0", False),
        ("torch==2.13.0+cpu", "2.13.0+cu130", False),
        ("torch==2.13.0+cu130", "2.13.0+cu130", True),
        ("x==1.0", "1", True),
        ("x==1.0", "1.0.1", False),
        ("x==1.10", "1.1", False),
        ("x==1.0rc1", "1.0-rc.1", True),
        ("x==1.0", "1.0rc1", False),
        ("x==1!1.0", "1.0", False),
    ],
)
def test_versions_are_compared_as_pip_does(pin, installed, accepted):
    assert requirements.parse(pin, PYTHON).accepts(installed) == accepted


def test_names_are_compared_in_their_normal_form():
    pins, findings = requirements.parse_all(["Typing_Extensions[x]==4.16.0"], PYTHON)
    assert not findings
    assert requirements.missing(pins, {"typing-extensions": "4.16.0"}) == []


def test_findings_on_a_request_come_at_once():
    _, findings = requirements.parse_all(["a", "b>1", "c==1", "C==1.0", "c==2"], PYTHON)
    assert [finding.split(" ")[0] for finding in findings] == ["'a'", "'b>1'", "'c==1'"]


def test_missing_packages_are_described():
    pins, _ = requirements.parse_all(["a==1", "b==2"], PYTHON)
    assert requirements.missing(pins, {"b": "3"}) == ["a 1 is not installed", "b is 3, requested is 2"]


@pytest.mark.parametrize(
    ("least", "most", "inside"),
    [("", "", True), ("3.9", "3.14", True), ("3.12", "", False), ("", "3.10", False), ("3.11", "3.11", True)],
)
def test_the_range_of_pythons_includes_its_ends(least, most, inside):
    assert requirements.python_in_range(PYTHON, least, most) == inside


def test_the_systems_whose_own_python_is_in_a_range():
    assert requirements.systems_with("3.8", "3.10") == ["Debian 11", "Ubuntu 22.04"]
    assert requirements.systems_with("3.13", "") == ["Debian 13"] and requirements.systems_with("", "3.8") == []
    named = {f"{system} {version}" for system, versions in SUPPORTED.items() for version in versions}
    assert {system.lower() for system in requirements.systems_with("", "")} == named


@given(st.lists(st.integers(0, 99), min_size=1, max_size=4), st.sampled_from(["", "+cpu", "rc1", ".post1", ".dev3"]))
def test_every_version_accepts_itself_and_itself_with_a_zero(parts, suffix):
    version = ".".join(map(str, parts))
    pin = requirements.parse(f"x=={version}{suffix}", PYTHON)
    assert pin.accepts(version + suffix)
    assert pin.accepts(f"{version}.0{suffix}")
    assert not pin.accepts(f"{version}.1{suffix}")


SUM = "#sha256=" + 64 * "0"
MARKUPSAFE = f"https://x/MarkupSafe-3.0.4-cp311-cp311-linux_x86_64.whl{SUM}"


@pytest.mark.parametrize("address", [MARKUPSAFE, f"file:///srv/markupsafe-3.0.4-py3-none-any.whl{SUM}"])
def test_a_wheel_of_the_wanted_version_is_accepted(address):
    pins, _ = requirements.parse_all(["MarkupSafe==3.0.4"], PYTHON)
    assert requirements.wheel_findings({"markupsafe": address}, pins) == []


@pytest.mark.parametrize(
    ("name", "address", "text"),
    [
        ("markupsafe", MARKUPSAFE.partition("#")[0], "expected https://.../NAME-VERSION-...whl#sha256=<64 hex"),
        ("markupsafe", f"https://x/MarkupSafe-3.0.4.tar.gz{SUM}", "the wheel of markupsafe is 'https://x/MarkupSafe-3"),
        (
            "markupsafe",
            MARKUPSAFE.replace("3.0.4", "3.0.3"),
            "is MarkupSafe-3.0.3, requested is markupsafe 3.0.4: give the",
        ),
        ("markupsafe", MARKUPSAFE.replace("MarkupSafe", "numpy"), "is numpy-3.0.4, requested is markupsafe 3.0.4"),
        ("numpy", MARKUPSAFE, "there is a wheel of numpy, but numpy is not among the packages"),
    ],
)
def test_a_wheel_of_another_package_or_version_is_a_finding(name, address, text):
    pins, _ = requirements.parse_all(["MarkupSafe==3.0.4"], PYTHON)
    assert text in " ".join(requirements.wheel_findings({name: address}, pins))


def test_a_password_in_the_address_of_a_wheel_is_not_shown():
    (finding,) = requirements.wheel_findings({"a": "https://me:secret@x/a.whl"}, [])
    assert "secret" not in finding
    assert "https://***@x/a.whl" in finding


def test_a_local_version_is_percent_encoded_in_an_address():
    pins, _ = requirements.parse_all(["torch==2.13.0+cpu"], PYTHON)
    address = f"https://x/torch-2.13.0%2Bcpu-cp311-cp311-linux.whl{SUM}"
    assert requirements.wheel_findings({"torch": address}, pins) == []


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        (["torch==2.7.1+cu126", "torchvision==0.22.1+cu126", "torchaudio==2.7.1+cu126"], ""),
        (["torch==2.7.1+cu126", "torchvision==0.22.1"], ""),
        (["torchvision==0.22.1+cpu"], ""),
        (["torch==2.7.1+cu126", "torchvision==0.22.1+cpu"], "give both the same +cu126"),
        (["torch==2.7.1+cu126", "torchaudio==2.7.1+cu128"], "give both the same +cu126"),
        (
            ["torch==2.7.1", "torchvision==0.21.0"],
            "'torchvision==0.21.0' does not belong to 'torch==2.7.1': take torchvision 0.22",
        ),
    ],
)
def test_torchvision_is_of_the_release_and_the_build_of_torch(texts, found):
    wrong = requirements.parse_all(texts, (3, 12))[1]
    assert [text.endswith(found) for text in wrong] == ([True] if found else [])
