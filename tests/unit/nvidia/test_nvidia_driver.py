"""The NVIDIA driver of a node: what tools and files say, where it came from, what is judged, in captured words."""

from __future__ import annotations

import pytest
from ansible.module_utils.trainyard.nvidia import driver
from ansible.module_utils.trainyard.nvidia.nvidia_answers import DRIVER
from ansible.module_utils.trainyard_node.machine.tree import Tree
from ansible.module_utils.trainyard_node.nvidia.driver_state import read_driver
from filters import fitting, of_hosts
from hypothesis import given
from hypothesis import strategies as st

KERNEL = "6.1.0-56-amd64"
DEBIAN = "Debian NVIDIA Maintainers <pkg-nvidia-devel@lists.alioth.debian.org>"
VENDOR = "cudatools <cudatools@nvidia.com>"
OPEN = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  Tue Sep 23 09:55:41 UTC 2025\n"
)
PROPRIETARY = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.103.01  Thu Jan  6 12:10:04 UTC 2022\n"
INSTALLER_LOG = "1.0-105917 (470.103.01)\nNVIDIA Accelerated Graphics Driver for Linux-x86_64\n1: /usr/bin/nvidia-smi\n"
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch"
MAKE_LOG = f"""DKMS make.log for nvidia-current-open-550.163.01 for kernel {KERNEL} (x86_64)
/var/lib/dkms/nvidia-current-open/550.163.01/build/nvidia-drm/nvidia-drm-drv.c:193:6: error: 'const struct drm_driver' \
has no member named 'date'
  193 |     .date                   = "20160202",
make[3]: *** [/usr/src/linux-headers/scripts/Makefile.build:229: nvidia-drm/nvidia-drm-drv.o] Error 1
make: *** [Makefile:90: modules] Error 2
"""


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (f"nvidia-current/535.309.01, {KERNEL}, x86_64: installed", f"nvidia-current 535.309.01 {KERNEL} installed"),
        ("nvidia-current/535.309.01: added", "nvidia-current 535.309.01  added"),
        ("nvidia, 470.103.01, 5.4.0-100-generic, x86_64: built", "nvidia 470.103.01 5.4.0-100-generic built"),
        (f"nvidia/550.127.08, {KERNEL}, x86_64: installed (WARNING! Diff between built and installed module!)",
         f"nvidia 550.127.08 {KERNEL} installed"),
        (f"nvidia/535.183.01, {KERNEL}: installed", f"nvidia 535.183.01 {KERNEL} installed"),
        ("nvidia-fs/2.17.5: added", None),
        ("zfs/2.1.11, 6.1.0-56-amd64, x86_64: installed", None),
        ("Error! Could not locate dkms.conf file.", None),
    ],
)  # fmt: skip
def test_dkms_status(line, found):
    names = ("module", "version", "kernel", "state")
    assert driver.read_dkms(f"{line}\n") == ([dict(zip(names, found.split(" ")))] if found else [])


def test_proc_version_and_log_of_the_installer():
    assert driver.read_proc_version(OPEN) == ("580.95.05", "open")
    assert driver.read_proc_version(PROPRIETARY) == ("470.103.01", "proprietary")
    assert driver.read_proc_version(None) == driver.read_proc_version("NVRM") == ("", "")
    newer = "550.127.08\nNVIDIA Accelerated Graphics Driver for Linux-x86_64\n"
    found = [driver.read_installer_log(text) for text in (INSTALLER_LOG, newer, "", None)]
    assert found == ["470.103.01", "550.127.08", "", ""]


def test_modinfo_of_both_flavours():
    signed = "version:        550.127.08\nlicense:        Dual MIT/GPL\nsigner:         trainyard MOK\n"
    assert list(driver.read_modinfo(signed).values()) == ["550.127.08", "open", "trainyard MOK"]
    assert driver.read_modinfo("version: 470.256.02\nlicense: NVIDIA\n")["flavour"] == "proprietary"
    assert not any(driver.read_modinfo("modinfo: ERROR: Module nvidia not found.").values())


def test_fabric_manager_and_smi():
    assert driver.read_fabric_manager("\n\n\tFabric Manager version is : 535.161.08\n\n") == "535.161.08"
    assert driver.read_fabric_manager("nv-fabricmanager: error while loading shared libraries") == ""
    assert driver.read_smi(0, "550.127.08\n550.127.08\n") == {"driver": "550.127.08", "problem": ""}
    assert driver.read_smi(18, f"{MISMATCH}\nNVML library version: 550.127\n")["problem"].startswith(MISMATCH)
    assert driver.read_smi(9, "") == {"driver": "", "problem": "it ended with status 9 and no output"}


PACKAGES = """
nvidia-kernel-open-dkms libnvidia-tesla-470-cuda1 cuda-drivers-550 firmware-nvidia-gsp nvidia-installer-cleanup
nvidia-driver-pinning-550 nvidia-fabricmanager-550 linux-modules-nvidia-550-server-generic glx-alternative-nvidia
"""
OTHERS = """
nvidia-container-toolkit libnvidia-container1 nvidia-cuda-toolkit libnvidia-ml-dev cuda-toolkit-12-4 libnccl2
"""


def test_packages_of_a_driver():
    assert [name for name in PACKAGES.split() if not driver.is_driver_package(name)] == []
    assert [name for name in OTHERS.split() if driver.is_driver_package(name)] == []


@pytest.mark.parametrize(
    ("listing", "runfile", "loaded", "provider", "version"),
    [
        ("", "", "", "none", ""),
        (f"nvidia-kernel-dkms\t535.309.01-0+deb12u1\tii \t{DEBIAN}", "", "", "distro", "535.309.01"),
        (f"nvidia-kernel-open-dkms\t550.54.15-1\thi \t{VENDOR}", "", "", "network_repo", "550.54.15"),
        (f"nvidia-dkms-550\t550.127.08-0ubuntu1\tii \t{VENDOR}", "", "", "network_repo", "550.127.08"),
        # Libraries of other software are no driver, and neither are the settings of a removed package.
        (f"libnvidia-ml1\t535.309.01-0+deb12u1\tii \t{DEBIAN}", "", "", "none", ""),
        (f"nvidia-kernel-dkms\t535.309.01-0+deb12u1\trc \t{DEBIAN}", "", "", "none", ""),
        ("", "470.103.01", "470.103.01", "runfile", "470.103.01"),
        (f"nvidia-kernel-dkms\t535.309.01-1\tii \t{DEBIAN}", "470.103.01", "", "unknown", "535.309.01"),
        ("", "", "550.54.15", "unknown", ""),
    ],
)
def test_provider_of_a_driver(listing, runfile, loaded, provider, version):
    packages = driver.read_packages(listing)
    assert driver.provider_of(packages, runfile, loaded) == provider
    assert driver.installed_version(packages, runfile) == version


def test_the_reason_of_a_failed_build_is_the_compilers_first_error():
    reason = driver.build_reason(MAKE_LOG)
    assert "nvidia-drm-drv.c:193:6: error: 'const struct" in reason and "Error 2" not in reason
    make = "make: *** [Makefile:80: modules] Error 2"
    assert [driver.build_reason(text) for text in (f"x\n{make}\n", "")] == [make, ""]


@given(st.text())
def test_no_output_breaks_a_parser(text):
    for name in ("dkms", "packages", "modinfo", "proc_version", "installer_log"):
        getattr(driver, f"read_{name}")(text)
    driver.build_reason(text)
    assert driver.read_smi(1, text)["driver"] == ""


@pytest.mark.parametrize("suffix", ["", "-1", "-0ubuntu1~22.04.1", "-1~deb12u1"])
def test_a_packages_version_holds_the_drivers(suffix):
    for version in ("535.309.01", "550.54.15", "470.1.02"):
        assert driver.package_version(version + suffix) == driver.package_version(f"1:{version}{suffix}") == version
        assert driver.branch_of(version) == version[:3]


@pytest.fixture
def machine(tmp_path):
    """Return a function that writes files of a captured machine and reads the driver there."""

    def read(files, kernels=(KERNEL,)):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return fitting(read_driver(Tree(str(tmp_path)), list(kernels)), DRIVER)

    return read


MODINFO = f"commands/modinfo.{KERNEL}.nvidia-current.out"
DPKG = f"nvidia-kernel-dkms\t535.309.01-0+deb12u1\tii \t{DEBIAN}\nnvidia-smi\t535.309.01-0+deb12u1\tii \t{DEBIAN}"
RUNNING = {
    "commands/dpkg-query.out": DPKG,
    "commands/apt-mark.out": "nvidia-kernel-dkms\nlinux-image-amd64\n",
    "commands/dkms.out": f"nvidia-current/535.309.01, {KERNEL}, x86_64: installed\n",
    MODINFO: "version: 535.309.01\nlicense: NVIDIA\n",
    "commands/nvidia-smi.out": "535.309.01\n",
    "sys/module/nvidia/version": "535.309.01\n",
    "proc/driver/nvidia/version": PROPRIETARY.replace("470.103.01", "535.309.01"),
    "proc/sys/kernel/osrelease": f"{KERNEL}\n",
    "usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ml.so.535.309.01": "",
    "usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ml.so.1": "",
    f"lib/modules/{KERNEL}/build/Makefile": "",
}
SETTINGS = {"version": "", "branch": "", "flavour": "", "kernels": [KERNEL], "gpus": True, "fabric_manager": False}


def judged(state, **settings):
    host = {"driver": state, "expected": {**SETTINGS, **settings}}
    found = of_hosts("nvidia_driver_findings", {"n1": host, "without": {}})
    return [(finding["check"], finding["found"]) for finding in found]


def test_a_running_driver(machine):
    """The kernel module of Debian has the name of its package."""
    state = machine(RUNNING)
    assert judged(state, branch="535") == []
    assert {state[name] for name in ("version", "loaded", "userspace")} == {"535.309.01"}
    assert (state["provider"], state["flavour"]) == ("distro", "proprietary")
    assert state["held"] == ["nvidia-kernel-dkms"]
    assert judged(state) == []


@pytest.mark.parametrize(
    ("changed", "settings", "check", "found"),
    [
        ({"sys/module/nvidia/version": "535.261.03"}, {}, "reboot due", "module 535.261.03 is loaded"),
        ({"sys/module/nouveau/refcnt": "1"}, {}, "reboot due", "nouveau is loaded"),
        ({"commands/nvidia-smi.out": MISMATCH, "commands/nvidia-smi.rc": "18"}, {}, "reboot due", MISMATCH),
        ({"usr/lib/x86_64-linux-gnu/libnvidia-ml.so.550.54.15": ""}, {}, "user space", "535.309.01, 550.54.15"),
        ({"commands/nv-fabricmanager.out": "Fabric Manager version is : 535.261.03"}, {"fabric_manager": True},
         "Fabric Manager", "535.261.03"),
        ({}, {"fabric_manager": True}, "Fabric Manager", "none"),
        ({}, {"version": "535.261.03"}, "driver", "535.309.01"),
        ({}, {"flavour": "open"}, "flavour", "proprietary"),
        ({"commands/nvidia-smi.out": "No devices were found", "commands/nvidia-smi.rc": "6"}, {},
         "nvidia-smi", "No devices were found"),
        ({MODINFO: "version: 470.256.02\nlicense: NVIDIA\n"}, {}, "kernel module", f"470.256.02 for kernel {KERNEL}"),
    ],
)  # fmt: skip
def test_findings_about_a_driver(machine, changed, settings, check, found):
    ((one, text),) = judged(machine({**RUNNING, **changed}), **settings)
    assert one == check and found in text


def test_a_failed_build_is_a_finding_with_the_compilers_errors(machine):
    files = {**RUNNING, "commands/dkms.out": "nvidia-current-open/535.309.01: added\n"}
    del files[MODINFO]
    files["var/lib/dkms/nvidia-current-open/535.309.01/build/make.log"] = MAKE_LOG
    ((check, found),) = judged(machine(files))
    assert check == "kernel module" and "errors of the build: /var/lib/dkms/" in found
    assert "nvidia-drm-drv.c:193:6: error" in found and "nvidia-current-open/535.309.01 added" in found


def test_headers_of_a_missing_module_are_named(machine):
    files = {**RUNNING, "commands/dkms.out": "nvidia-current/535.309.01: added\n"}
    del files[MODINFO], files[f"lib/modules/{KERNEL}/build/Makefile"]
    ((check, found),) = judged(machine(files))
    assert check == "kernel module" and "headers are not installed" in found


def test_packages_that_are_missing_or_half_installed(machine):
    half = machine({"commands/dpkg-query.out": f"nvidia-kernel-dkms\t535.309.01-0+deb12u1\tiF \t{DEBIAN}"})
    assert half["broken"] == ["nvidia-kernel-dkms"]
    state = machine({"commands/dpkg-query.out": "bash\t5.2\tii \tx"})
    assert (state["provider"], state["version"], state["packages"], state["reboot_due"]) == ("none", "", {}, [])
    assert judged(state) == [("driver", "none is installed")]


def test_traces_of_the_vendors_installer(machine):
    state = machine(
        {
            "var/lib/nvidia/log": INSTALLER_LOG,
            "usr/bin/nvidia-uninstall": "",
            "usr/src/nvidia-470.103.01/dkms.conf": "",
            "commands/dpkg-query.out": "",
        }
    )
    assert (state["provider"], state["version"]) == ("runfile", "470.103.01")
    assert state["dkms"] == [{"module": "nvidia", "version": "470.103.01", "kernel": "", "state": "unregistered"}]
