"""The NVIDIA driver of a node: what tools and files say, where it came from, what is judged, in captured words."""

from __future__ import annotations

import pytest
from ansible.module_utils.trainyard.nvidia import driver
from ansible.module_utils.trainyard_node.machine.tree import Tree
from ansible.module_utils.trainyard_node.nvidia.driver import read_driver
from filters import FILTERS
from hypothesis import given
from hypothesis import strategies as st

KERNEL = "6.1.0-56-amd64"
DEBIAN = "Debian NVIDIA Maintainers <pkg-nvidia-devel@lists.alioth.debian.org>"
VENDOR = "cudatools <cudatools@nvidia.com>"
OPEN = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs-builder@U22-I3-B17-02-5)"
    "  Tue Sep 23 09:55:41 UTC 2025\nGCC version:  gcc version 11.4.0 (Ubuntu 11.4.0-1ubuntu1~22.04.2)\n"
)
PROPRIETARY = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.103.01  Thu Jan  6 12:10:04 UTC 2022\n"
    "GCC version:  gcc version 9.4.0 (Ubuntu 9.4.0-1ubuntu1~20.04.2)\n"
)
MAKE_LOG = f"""DKMS make.log for nvidia-current-open-550.163.01 for kernel {KERNEL} (x86_64)
Sat Nov 21 16:50:11 UTC 2026
make KERNEL_UNAME={KERNEL} modules
  CC [M]  /var/lib/dkms/nvidia-current-open/550.163.01/build/nvidia-drm/nvidia-drm-drv.o
/var/lib/dkms/nvidia-current-open/550.163.01/build/nvidia-drm/nvidia-drm-drv.c:193:6: error: 'const struct drm_driver' \
has no member named 'date'
  193 |     .date                   = "20160202",
make[3]: *** [/usr/src/linux-headers/scripts/Makefile.build:229: nvidia-drm/nvidia-drm-drv.o] Error 1
make: *** [Makefile:90: modules] Error 2
"""


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (
            f"nvidia-current/535.309.01, {KERNEL}, x86_64: installed",
            ("nvidia-current", "535.309.01", KERNEL, "installed"),
        ),
        ("nvidia-current/535.309.01: added", ("nvidia-current", "535.309.01", "", "added")),
        (
            "nvidia, 470.103.01, 5.4.0-100-generic, x86_64: installed",
            ("nvidia", "470.103.01", "5.4.0-100-generic", "installed"),
        ),
        (
            "nvidia/550.127.08, 6.8.0-5-generic, x86_64: installed (WARNING! Diff between built and installed module!)",
            ("nvidia", "550.127.08", "6.8.0-5-generic", "installed"),
        ),
        (
            "nvidia-tesla-470/470.256.02, 6.1.0-56-amd64, x86_64: built",
            ("nvidia-tesla-470", "470.256.02", KERNEL, "built"),
        ),
        ("nvidia-fs/2.17.5: added", None),
        ("zfs/2.1.11, 6.1.0-56-amd64, x86_64: installed", None),
        ("Error! Could not locate dkms.conf file.", None),
        ("nvidia/535.183.01, 6.1.0-18-amd64: installed", ("nvidia", "535.183.01", "6.1.0-18-amd64", "installed")),
    ],
)
def test_dkms_status(said, found):
    names = ("module", "version", "kernel", "state")
    assert driver.read_dkms(f"{said}\n") == ([dict(zip(names, found))] if found else [])


@pytest.mark.parametrize(
    ("text", "found"),
    [(OPEN, ("580.95.05", "open")), (PROPRIETARY, ("470.103.01", "proprietary")), (None, ("", "")), ("NVRM", ("", ""))],
)
def test_proc_version(text, found):
    assert driver.read_proc_version(text) == found


def test_modinfo_of_both_flavours():
    signed = (
        "filename: /lib/modules/x/updates/dkms/nvidia.ko\nversion:        550.127.08\nlicense:        Dual MIT/GPL\n"
    )
    assert driver.read_modinfo(f"{signed}signer:         trainyard MOK\n") == {
        "version": "550.127.08",
        "flavour": "open",
        "signer": "trainyard MOK",
    }
    assert driver.read_modinfo("version: 470.256.02\nlicense: NVIDIA\n")["flavour"] == "proprietary"
    assert driver.read_modinfo("modinfo: ERROR: Module nvidia not found.") == {
        "version": "",
        "flavour": "",
        "signer": "",
    }


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "1.0-105917 (470.103.01)\nNVIDIA Accelerated Graphics Driver for Linux-x86_64\n1: /usr/bin/nvidia-smi\n",
            "470.103.01",
        ),
        ("550.127.08\nNVIDIA Accelerated Graphics Driver for Linux-x86_64\n", "550.127.08"),
        ("", ""),
        (None, ""),
    ],
)
def test_trace_of_the_installer(text, found):
    assert driver.read_installer_log(text) == found


def test_fabric_manager_and_smi():
    assert driver.read_fabric_manager("\n\n\tFabric Manager version is : 535.161.08\n\n") == "535.161.08"
    assert driver.read_fabric_manager("nv-fabricmanager: error while loading shared libraries") == ""
    assert driver.read_smi(0, "550.127.08\n550.127.08\n") == {"driver": "550.127.08", "problem": ""}
    mismatch = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.127\n"
    assert driver.read_smi(18, mismatch)["problem"].startswith(
        "Failed to initialize NVML: Driver/library version mismatch"
    )
    assert driver.read_smi(9, "") == {"driver": "", "problem": "it ended with status 9 and no output"}


@pytest.mark.parametrize(
    ("name", "belongs"),
    [
        ("nvidia-kernel-open-dkms", True),
        ("libnvidia-tesla-470-cuda1", True),
        ("cuda-drivers-550", True),
        ("firmware-nvidia-gsp", True),
        ("nvidia-driver-pinning-550", True),
        ("nvidia-fabricmanager-550", True),
        ("linux-modules-nvidia-550-server-generic", True),
        ("nvidia-container-toolkit", False),
        ("libnvidia-container1", False),
        ("nvidia-cuda-toolkit", False),
        ("libnvidia-ml-dev", False),
        ("cuda-toolkit-12-4", False),
        ("libnccl2", False),
        ("nvidia-installer-cleanup", True),
        ("glx-alternative-nvidia", True),
    ],
)
def test_which_packages_belong_to_a_driver(name, belongs):
    assert driver.is_driver_package(name) == belongs


def listed(*packages, maintainer=DEBIAN):
    lines = [f"{name}\t{version}\t{status}\t{maintainer}" for name, version, status in packages]
    return driver.read_packages("\n".join(lines))


@pytest.mark.parametrize(
    ("packages", "runfile", "loaded", "provider", "version"),
    [
        ([], "", "", "none", ""),
        (listed(("nvidia-kernel-dkms", "535.309.01-0+deb12u1", "ii ")), "", "", "distro", "535.309.01"),
        (
            listed(("nvidia-kernel-open-dkms", "550.54.15-1", "hi "), maintainer=VENDOR),
            "",
            "",
            "network_repo",
            "550.54.15",
        ),
        (
            listed(("nvidia-dkms-550", "550.127.08-0ubuntu1", "ii "), maintainer=VENDOR),
            "",
            "",
            "network_repo",
            "550.127.08",
        ),
        # Libraries that something else has brought are no driver, and neither is what was purged but for its settings.
        (listed(("libnvidia-ml1", "535.309.01-0+deb12u1", "ii ")), "", "", "none", ""),
        (listed(("nvidia-kernel-dkms", "535.309.01-0+deb12u1", "rc ")), "", "", "none", ""),
        ([], "470.103.01", "470.103.01", "runfile", "470.103.01"),
        (listed(("nvidia-kernel-dkms", "535.309.01-0+deb12u1", "ii ")), "470.103.01", "", "unknown", "535.309.01"),
        ([], "", "550.54.15", "unknown", ""),
    ],
)
def test_provider_of_a_driver(packages, runfile, loaded, provider, version):
    assert driver.provider_of(packages, runfile, loaded) == provider
    assert driver.installed_version(packages, runfile) == version


def test_the_reason_of_a_failed_build_is_the_compilers_first_error():
    assert driver.build_reason(MAKE_LOG).startswith(
        "/var/lib/dkms/nvidia-current-open/550.163.01/build/nvidia-drm/nvidia-drm-drv.c:193:6: error: 'const struct"
    )
    assert "Error 2" not in driver.build_reason(MAKE_LOG)
    assert (
        driver.build_reason("x\nmake: *** [Makefile:80: modules] Error 2\n")
        == "make: *** [Makefile:80: modules] Error 2"
    )
    assert driver.build_reason("") == ""


@given(st.text())
def test_no_output_breaks_a_parser(text):
    driver.read_dkms(text)
    driver.read_packages(text)
    driver.read_modinfo(text)
    driver.read_proc_version(text)
    driver.read_installer_log(text)
    driver.build_reason(text)
    assert driver.read_smi(1, text)["driver"] == ""


@given(
    st.from_regex(r"\d{3}\.\d{1,3}\.\d{2}", fullmatch=True),
    st.sampled_from(["", "-1", "-0ubuntu1~22.04.1", "-1~deb12u1"]),
)
def test_a_packages_version_holds_the_drivers(version, suffix):
    assert driver.package_version(version + suffix) == driver.package_version(f"1:{version}{suffix}") == version
    assert driver.branch_of(version) == int(version[:3])


# A machine as it was captured: files, and what commands print.


@pytest.fixture
def machine(tmp_path):
    """Return a function that writes files of a captured machine and reads the driver there."""

    def read(files, kernels=(KERNEL,)):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return read_driver(Tree(str(tmp_path)), "n1", list(kernels))

    return read


DPKG = "\n".join(
    f"{name}\t535.309.01-0+deb12u1\tii \t{DEBIAN}" for name in ("nvidia-kernel-dkms", "nvidia-smi", "libnvidia-ml1")
)
RUNNING = {
    "commands/dpkg-query.out": DPKG,
    "commands/apt-mark.out": "nvidia-kernel-dkms\nlinux-image-amd64\n",
    "commands/dkms.out": f"nvidia-current/535.309.01, {KERNEL}, x86_64: installed\n",
    f"commands/modinfo.{KERNEL}.nvidia-current.out": "version: 535.309.01\nlicense: NVIDIA\n",
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
    return [(finding["check"], finding["found"]) for finding in FILTERS["nvidia_driver_findings"]([host])]


def test_a_running_driver(machine):
    """Debian's, whose module has the name of its package."""
    state = machine(RUNNING)
    assert (state["provider"], state["version"], state["loaded"]) == ("distro", "535.309.01", "535.309.01")
    assert (state["userspace"], state["flavour"], state["held"]) == (
        "535.309.01",
        "proprietary",
        ["nvidia-kernel-dkms"],
    )
    assert judged(state) == []


@pytest.mark.parametrize(
    ("changed", "settings", "found"),
    [
        (
            {"sys/module/nvidia/version": "535.261.03"},
            {},
            [("reboot due", "module 535.261.03 is loaded, 535.309.01 is installed")],
        ),
        ({"sys/module/nouveau/refcnt": "1"}, {}, [("reboot due", "nouveau is loaded, 535.309.01 is installed")]),
        (
            {
                "commands/nvidia-smi.out": "Failed to initialize NVML: Driver/library version mismatch",
                "commands/nvidia-smi.rc": "18",
            },
            {},
            [("reboot due", "nvidia-smi reports: Failed to initialize NVML: Driver/library version mismatch")],
        ),
        ({"usr/lib/x86_64-linux-gnu/libnvidia-ml.so.550.54.15": ""}, {}, [("user space", "535.309.01, 550.54.15")]),
        (
            {"commands/nv-fabricmanager.out": "Fabric Manager version is : 535.261.03"},
            {"fabric_manager": True},
            [("Fabric Manager", "535.261.03")],
        ),
        ({}, {"fabric_manager": True}, [("Fabric Manager", "none")]),
        ({}, {"version": "535.261.03"}, [("driver", "535.309.01")]),
        ({}, {"branch": "535"}, []),
        ({}, {"flavour": "open"}, [("flavour", "proprietary")]),
        (
            {"commands/nvidia-smi.out": "No devices were found", "commands/nvidia-smi.rc": "6"},
            {},
            [("nvidia-smi", "No devices were found")],
        ),
        (
            {f"commands/modinfo.{KERNEL}.nvidia-current.out": "version: 470.256.02\nlicense: NVIDIA\n"},
            {},
            [
                (
                    "kernel module",
                    f"module 470.256.02 for kernel {KERNEL}; dkms status: nvidia-current/535.309.01 installed",
                )
            ],
        ),
    ],
)
def test_findings_about_a_driver(machine, changed, settings, found):
    assert judged(machine({**RUNNING, **changed}), **settings) == found


def test_a_module_that_is_only_added_is_no_module(machine):
    files = {**RUNNING, "commands/dkms.out": "nvidia-current/535.309.01: added\n"}
    del files[f"commands/modinfo.{KERNEL}.nvidia-current.out"], files[f"lib/modules/{KERNEL}/build/Makefile"]
    del files["sys/module/nvidia/version"], files["proc/driver/nvidia/version"]
    state = machine(files)
    assert judged(state, gpus=False) == [
        (
            "kernel module",
            f"none for kernel {KERNEL}; dkms status: nvidia-current/535.309.01 added; its headers are not installed",
        )
    ]


def test_a_failed_build_is_a_finding_with_the_compilers_errors(machine):
    files = {**RUNNING, "commands/dkms.out": "nvidia-current-open/535.309.01: added\n"}
    del files[f"commands/modinfo.{KERNEL}.nvidia-current.out"]
    files["var/lib/dkms/nvidia-current-open/535.309.01/build/make.log"] = MAKE_LOG
    ((check, found),) = judged(machine(files))
    assert check == "kernel module"
    assert "errors of the build: /var/lib/dkms/" in found and "nvidia-drm-drv.c:193:6: error" in found


def test_nothing_is_installed(machine):
    state = machine({"commands/dpkg-query.out": "bash\t5.2\tii \tx"})
    assert (state["provider"], state["version"], state["packages"], state["reboot_due"]) == ("none", "", {}, [])
    assert judged(state) == [("driver", "none is installed")]


def test_traces_of_the_vendors_installer(machine):
    state = machine(
        {
            "var/lib/nvidia/log": "1.0-105917 (470.103.01)\nNVIDIA Accelerated Graphics Driver for Linux-x86_64\n",
            "usr/bin/nvidia-uninstall": "",
            "usr/src/nvidia-470.103.01/dkms.conf": "",
            "commands/dpkg-query.out": "",
        }
    )
    assert (state["provider"], state["version"]) == ("runfile", "470.103.01")
    assert state["dkms"] == [{"module": "nvidia", "version": "470.103.01", "kernel": "", "state": "unregistered"}]


def test_half_installed_packages_are_seen(machine):
    text = f"nvidia-kernel-dkms\t535.309.01-0+deb12u1\tiF \t{DEBIAN}"
    assert machine({"commands/dpkg-query.out": text})["broken"] == ["nvidia-kernel-dkms"]
