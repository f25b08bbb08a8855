"""The packages of a driver for a lock, without a host."""

import pytest
from ansible.module_utils.trainyard.nvidia import driver_packages, stack

SETTINGS = {
    "provider": "network_repo",
    "state": "present",
    "version": "550.54.15",
    "branch": "550",
    "flavour": "proprietary",
    "kernels": ["6.1.0-9-amd64"],
    "packages": [],
    "gpus": "auto",
    "without_gpu": False,
    "fabric_manager": "auto",
}


def locked(distribution="debian", headers=True, **more):
    return driver_packages.locked({**SETTINGS, **more}, distribution, headers, ["dkms", "gcc"])


def test_a_driver_with_its_pins_and_the_headers_of_its_kernel():
    found = locked()
    assert found["driver"] == {
        "roots": [["cuda-drivers-550", "cuda-drivers"]],
        # Only the node knows whether it has NVSwitches.
        "optional": [["nvidia-fabricmanager-550", "nvidia-fabricmanager"]],
        "pinning": ["nvidia-driver-pinning-550.54.15", "nvidia-driver-pinning-550"],
        "version": "550.54.15",
        "branch": "550",
    }
    assert (found["packages"], found["optional_packages"]) == ([], ["linux-headers-6.1.0-9-amd64"])
    assert found["missing"] == []


def test_an_unknown_kernel_is_missing_by_name():
    found = locked(kernels=[""])
    assert found["optional_packages"] == []
    assert [each["what"] for each in found["missing"]] == ["headers of the running kernel"]
    assert locked(kernels=[""], headers=False)["missing"] == locked(kernels=[])["missing"] == []
    # A name that is none goes into no command line.
    assert locked(kernels=["-x; reboot"])["optional_packages"] == []


@pytest.mark.parametrize("given", [("true", 2, 0), ("false", 1, 0), ("auto", 1, 1)])
def test_the_fabric_manager_as_it_is_asked_for(given):
    asked, roots, optional = given
    driver = locked(fabric_manager=asked)["driver"]
    assert (len(driver["roots"]), len(driver["optional"])) == (roots, optional)


def test_names_of_the_distribution():
    assert locked("ubuntu", provider="distro")["driver"]["roots"][0] == ["nvidia-headless-550-server"]
    debian = locked("debian", provider="distro")["driver"]
    assert debian["roots"][0] == ["nvidia-kernel-dkms"] and debian["pinning"] == []


def test_an_installer_needs_build_tools_and_no_repository():
    found = locked(provider="runfile")
    assert (found["driver"], found["packages"]) == ({}, ["dkms", "gcc"])
    assert locked(provider="runfile", kernels=[])["packages"] == []


@pytest.mark.parametrize("more", [{"provider": "none"}, {"state": "absent"}, {"gpus": "0"}])
def test_hosts_that_get_no_driver(more):
    assert not any(locked(**more).values())
    assert not any(locked(**{**more, "kernels": [""]}).values())


def test_a_stack_without_a_visit_names_what_the_gpus_decide():
    catalog = {"new": {"set": {"driver": {"provider": "network_repo", "branch": "580", "version": "580.95.05"}}}}
    rules = {"generations": []}
    found = stack.assume(catalog, rules, "new", {}, "n1")
    assert found["parts"]["driver"]["flavour"] == "open"
    assert [each["what"] for each in found["missing"]] == ["another flavour of the driver than open"]
    chosen = stack.assume(catalog, rules, "new", {"driver": {"flavour": "proprietary"}}, "n1")
    assert chosen["missing"] == [] and chosen["parts"]["driver"]["flavour"] == "proprietary"
    # The distribution's driver has one flavour for all GPUs.
    debian = stack.assume(catalog, rules, "", {"driver": {"provider": "distro", "branch": "535"}}, "n1")
    assert debian["missing"] == [] and debian["parts"]["driver"]["flavour"] == "proprietary"
    assert stack.assume(catalog, rules, "none", {}, "n1")["findings"][0]["host"] == "n1"
    assert stack.assume(catalog, rules, "", {}, "n1") == {"parts": {}, "findings": [], "missing": []}
