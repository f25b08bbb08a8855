"""Which packages or which installer bring a driver to a host, and what forbids it, in tables of cases."""

from __future__ import annotations

import pytest
from ansible.module_utils.trainyard.nvidia import driver_plan as plan
from ansible.module_utils.trainyard.nvidia.nvidia_answers import DRIVER_NODE
from filters import FILTERS, declared, of_hosts

KERNEL = "6.1.0-56-amd64"
STATE = {
    **{"host": "n1", "kernel": KERNEL, "provider": "none", "version": "", "loaded": "", "packages": {}, "broken": []},
    **{"runfile": "", "nouveau": False, "dkms": [], "modules": {KERNEL: {"version": ""}}, "builds": {}},
    **{"headers": [KERNEL], "held": [], "flavour": "", "userspace": "", "fabric_manager": "", "reboot_due": []},
    "smi": {"driver": "", "problem": ""},
}
FACTS = {
    "os": {"id": "debian", "version": "12", "family": "debian"},
    "arch": "x86_64",
    "kernel": {"running": KERNEL, "headers": [KERNEL], "headers_available": True},
    "virtual": "",
    "gpus": [{"device_id": "0x20b2", "name": "A100 SXM4 80GB", "generation": "ampere"}] * 8,
    "nvswitches": 0,
    "secure_boot": "disabled",
    "nouveau": False,
    "gcc": "12.2.0",
    "apt": {"held": [], "broken": [], "kept": []},
    "cuda": [],
    "free_mib": {"/": 90000},
}
SETTINGS = {
    **{"provider": "network_repo", "state": "present", "version": "550.127.08", "branch": "", "flavour": "proprietary"},
    **{"kernels": [KERNEL], "packages": [], "replace": False, "gpus": "auto", "without_gpu": False},
    **{"fabric_manager": "auto", "url": "", "file": "", "sha256": "", "arguments": [], "mok": False},
}
ADDRESS = "https://mirror.example.org/NVIDIA-Linux-x86_64-470.103.01.run"
RUNFILE = {"provider": "runfile", "version": "470.103.01", "url": ADDRESS, "sha256": "a" * 64}
INSTALLED = {"provider": "network_repo", "version": "550.54.15", "packages": {"nvidia-kernel-dkms": "550.54.15-1"}}


def planned(settings=(), state=(), facts=()):
    plans, findings = plan.plan_hosts([host(dict(settings), dict(state), dict(facts))])
    return plans["n1"], findings


def host(settings, state, facts):
    node = {"driver": {**STATE, **state}, "facts": {**FACTS, **facts}, "settings": {**SETTINGS, **settings}}
    return declared(node, DRIVER_NODE)


def distro(branch, **changes):
    return {"provider": "distro", "version": "", "branch": branch, **changes}


def test_the_filter_plans_all_hosts():
    made = of_hosts("nvidia_driver_plan", {"n1": host({}, {}, {}), "n2": host({"flavour": "open"}, {}, {})})
    assert made["findings"] == []
    first = {host: each["roots"][0][0] for host, each in made["nodes"].items()}
    assert first == {"n1": "cuda-drivers-550", "n2": "nvidia-open-550"}


@pytest.mark.parametrize(
    ("given", "first"),
    [
        ({}, ["cuda-drivers-550", "cuda-drivers"]),
        ({"version": "", "branch": "580", "flavour": "open"}, ["nvidia-open-580", "nvidia-open"]),
        ({"version": "590.48.01", "flavour": "open"}, ["nvidia-open"]),
        ({"version": "590.48.01"}, ["cuda-drivers"]),
        (distro("535"), ["nvidia-kernel-dkms"]),
        (distro("550", flavour="open"), ["nvidia-open-kernel-dkms"]),
        (distro("470"), ["nvidia-tesla-470-kernel-dkms"]),
        ({"packages": ["nvidia-dkms-550-server", "libnvidia-compute-550"]}, ["nvidia-dkms-550-server"]),
    ],
)
def test_the_package_of_the_module_has_the_name_of_its_branch(given, first):
    assert planned(given)[0]["roots"][0] == first


def test_a_distributions_driver_comes_without_an_x_server_or_a_pin():
    assert planned()[0]["pinning"] == ["nvidia-driver-pinning-550.127.08", "nvidia-driver-pinning-550"]
    assert planned({"provider": "distro"})[0]["pinning"] == []
    names = {name for names in planned(distro("470"))[0]["roots"] for name in names}
    assert names >= {"nvidia-tesla-470-smi", "libnvidia-tesla-470-cuda1", "nvidia-persistenced"}
    assert not [name for name in names if "xserver" in name or name.endswith("-driver")]
    ubuntu = plan.roots({"id": "ubuntu"}, {**SETTINGS, "provider": "distro", "flavour": "open"}, True)
    assert ubuntu == [["nvidia-headless-550-server-open"], ["nvidia-utils-550-server"], ["nvidia-fabricmanager-550"]]


@pytest.mark.parametrize(
    ("version", "names"),
    [
        ("550.127.08", ["nvidia-fabricmanager-550", "nvidia-fabricmanager"]),
        ("580.95.05", ["nvidia-fabricmanager", "nvidia-fabricmanager-580"]),
    ],
)
def test_fabric_manager_comes_where_nvswitches_are(version, names):
    assert planned({"version": version}, facts={"nvswitches": 4})[0]["roots"][1:] == [names]
    assert planned({"version": version})[0]["roots"][1:] == []
    assert planned({"version": version, "fabric_manager": "true"})[0]["roots"][1:] == [names]
    assert planned({"version": version, "fabric_manager": "false"}, facts={"nvswitches": 4})[0]["roots"][1:] == []


@pytest.mark.parametrize(
    ("settings", "state", "gpus", "arguments"),
    [
        ({"version": "470.103.01"}, {}, True, ["--dkms"]),
        # Neither option is known to 470, whatever else would ask for it.
        ({"version": "470.103.01"}, {"nouveau": True}, False, ["--dkms", "--no-nouveau-check"]),
        ({"version": "535.309.01"}, {}, True, ["--dkms"]),
        ({"version": "535.309.01", "flavour": "open"}, {}, True,
         ["--dkms", "--kernel-module-build-directory=kernel-open"]),
        ({"version": "580.95.05", "flavour": "open"}, {}, True, ["--dkms", "--kernel-module-type=open"]),
        ({"version": "580.95.05"}, {}, False, ["--dkms", "--kernel-module-type=proprietary", "--skip-module-load"]),
        ({"version": "470.103.01", "kernels": ["5.10.0-28-amd64", KERNEL]}, {}, True,
         ["--dkms", "--kernel-name=5.10.0-28-amd64"]),
        ({"version": "470.103.01", "kernels": []}, {}, True, ["--no-kernel-module"]),
        ({"version": "470.103.01", "arguments": ["--no-drm"]}, {}, True, ["--dkms", "--no-drm"]),
    ],
)  # fmt: skip
def test_the_installer_gets_only_options_that_its_branch_knows(settings, state, gpus, arguments):
    found = plan.installer_arguments({**SETTINGS, **settings}, {**STATE, **state}, gpus)
    assert found == ["--silent", "--no-questions", "--no-x-check", *arguments]


def test_a_version_or_branch_is_never_taken_for_a_longer_one():
    versions = ["560.35.03-1", "550.127.08-1", "550.54.15-1"]
    for version, branch, chosen in (("550.54.15", "", versions[2]), ("", "550", versions[1]), ("", "", versions[0])):
        assert plan.choose_version(versions, version, branch) == chosen
    for version, branch in (("550.54.1", ""), ("", "55"), ("550.54.15", "560")):
        assert plan.choose_version(versions, version, branch) == ""


@pytest.mark.parametrize(
    ("settings", "state", "facts", "check", "found"),
    [
        ({"version": "550.*"}, {}, {}, "nvidia_driver_version", "'550.*'"),
        ({"branch": "535"}, {}, {}, "nvidia_driver_branch", "'535'"),
        ({"version": "", "branch": "x"}, {}, {"nvswitches": 4}, "nvidia_driver_branch", "'x'"),
        (distro("x", flavour="open"), {}, {}, "nvidia_driver_branch", "'x'"),
        (distro("470", flavour="open"), {}, {}, "nvidia_driver_flavour", "open of branch 470"),
        ({**RUNFILE, "sha256": "abc"}, {}, {}, "nvidia_driver_sha256", "'abc'"),
        ({**RUNFILE, "version": "470.141.03"}, {}, {}, "nvidia_driver_url", "NVIDIA-Linux-x86_64-470.103.01.run"),
        (RUNFILE, {}, {"arch": "aarch64"}, "nvidia_driver_url", "NVIDIA-Linux-x86_64-470.103.01.run"),
        ({**RUNFILE, "url": ""}, {}, {}, "nvidia_driver_url", "none, and no nvidia_driver_file"),
        ({}, {}, {"gpus": []}, "GPUs", "none on the PCI bus"),
        ({"gpus": "4"}, {}, {}, "GPUs", "8 on the PCI bus"),
        (RUNFILE, INSTALLED, {}, "driver from elsewhere", "driver 550.54.15 from network_repo"),
        ({"replace": True}, {**INSTALLED, "provider": "unknown", "runfile": "470.103.01"}, {}, "driver from elsewhere",
         "packages nvidia-kernel-dkms, and the vendor's installer (470.103.01)"),
        ({}, {}, {"apt": {"held": [], "broken": ["dkms"], "kept": []}}, "packages", "half installed: dkms"),
        ({}, {}, {"secure_boot": "enabled"}, "Secure Boot", "enabled, without a key to sign the module"),
        (distro("535"), {}, {"nvswitches": 4}, "Fabric Manager", "4 NVSwitches, and distro has no Fabric Manager"),
    ],
)  # fmt: skip
def test_findings_before_an_installation(settings, state, facts, check, found):
    _, (finding,) = planned(settings, state, facts)
    assert (finding.host, finding.check, bool(finding.action)) == ("n1", check, True)
    assert found in finding.found


@pytest.mark.parametrize(
    ("settings", "state", "facts"),
    [
        ({**RUNFILE, "url": "", "sha256": ""}, {"provider": "runfile", "runfile": "470.103.01"}, {}),
        ({**RUNFILE, "replace": True}, INSTALLED, {}),
        ({"mok": True}, {}, {"secure_boot": "enabled"}),
        ({"kernels": []}, {}, {"secure_boot": "enabled"}),
        # A verification alone accepts every way of installation.
        ({"provider": "none"}, {**INSTALLED, "provider": "unknown"}, {"secure_boot": "enabled"}),
    ],
)
def test_no_findings_before_an_installation(settings, state, facts):
    assert planned(settings, state, facts)[1] == []


@pytest.mark.parametrize(
    ("settings", "state", "action", "remove", "step"),
    [
        ({}, {}, "install", "", "install driver 550.127.08 (network_repo)"),
        ({}, INSTALLED, "install", "", "driver 550.127.08 instead of 550.54.15 (network_repo)"),
        ({"version": "550.54.15"}, INSTALLED, "install", "", f"build the module 550.54.15 for {KERNEL}"),
        ({"version": "550.54.15"}, {**INSTALLED, "modules": {KERNEL: {"version": "550.54.15"}}}, "install", "", ""),
        ({"version": "", "branch": "560"}, INSTALLED, "install", "",
         "driver branch 560 instead of 550.54.15 (network_repo)"),
        ({**RUNFILE, "replace": True}, INSTALLED, "install", "network_repo",
         "remove driver 550.54.15 (network_repo), install 470.103.01 (runfile)"),
        ({"state": "absent"}, INSTALLED, "remove", "network_repo", "remove driver 550.54.15 (network_repo)"),
        ({"state": "absent"}, {}, "remove", "none", ""),
        ({"gpus": "0"}, {}, "skip", "", ""),
        ({"gpus": "0", "without_gpu": True}, {}, "install", "", "install driver 550.127.08 (network_repo)"),
        ({"provider": "none"}, INSTALLED, "verify", "", ""),
    ],
)  # fmt: skip
def test_planned_steps(settings, state, action, remove, step):
    found, findings = planned(settings, state, {"gpus": [] if settings.get("gpus") == "0" else FACTS["gpus"]})
    assert (findings, found["action"], found["remove"], found["step"]) == ([], action, remove, step)


DEBIAN_OR_UBUNTU = ["nvidia-kernel-dkms", "nvidia-headless-535-server"]


@pytest.mark.parametrize(
    ("given", "names", "version", "begins"),
    [
        ({}, ["cuda-drivers-550", "cuda-drivers"], "550.127.08", "550."),
        ({"version": "", "branch": "580", "flavour": "open"}, ["nvidia-open-580", "nvidia-open"], "", "580."),
        # The distribution is not known yet.
        (distro("535"), DEBIAN_OR_UBUNTU, "", "535."),
    ],
)
def test_offers_of_the_package_that_decides(given, names, version, begins):
    [offer] = FILTERS["nvidia_driver_offers"]({**SETTINGS, **given})
    assert (offer["names"][: len(names)], offer["version"], offer["begins"]) == (names, version, begins)
    for other in ({"provider": "runfile"}, {"state": "absent"}, {"gpus": "0"}, {"branch": "x"}):
        assert plan.offers({**SETTINGS, **given, **other}) == []
