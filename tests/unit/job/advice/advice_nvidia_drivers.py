"""Drivers of NVIDIA, their upgrade and their containers, and what readers do for each part of the advice."""

from __future__ import annotations

from advice_readers import together
from advice_rules import Rule, correct, put
from ansible.module_utils.trainyard.findings.findings import Finding
from ansible.module_utils.trainyard.nvidia import container_toolkit, driver_packages, driver_plan, upgrade
from ansible.module_utils.trainyard.nvidia import driver as drivers
from driver_upgrades import EXPECTED, NEW, OLD, OPTIONS, RUNFILE, driver, node
from test_container_toolkit import GOOD
from test_library_plan import SUM
from test_nvidia_driver_plan import RUNFILE as DRIVER_RUNFILE
from test_nvidia_driver_plan import host

# ---- drivers


def planned_driver(**changes):
    """Return a host with a driver and the settings of the role nvidia_driver."""
    return Rule(lambda given: driver_plan.plan_hosts([given])[1], host({}, {}, {}), **changes)


def checked_driver(**changes):
    """Return a host whose installed driver is compared with what is expected."""
    given = {"driver": driver(version=NEW), "expected": EXPECTED}
    return Rule(lambda given: drivers.check_hosts([given]), given, **changes)


def packaged_driver(**changes):
    """Return a driver by packages, and what a repository offers."""
    given = {
        "request": {"roots": [["cuda-drivers"]], "pinning": [], "version": NEW, "branch": ""},
        "offered": {"cuda-drivers": [f"{OLD}-1"]},
    }

    def chosen(given):
        return driver_packages.choose(driver_packages.Request(**given["request"]), given["offered"], "apt").findings

    return Rule(chosen, given, **changes)


DRIVERS = {
    f"a wrong {name}": lambda _, changes=changes, name=name, right=right: (
        planned_driver(**changes),
        correct(f"nvidia_driver_{name}", **right),
    )
    for name, changes, right in (
        ("version", {"settings__version": "550"}, {"settings__version": NEW}),
        ("flavour", {"settings__flavour": "open", "settings__version": "470.1.1"},
         {"settings__flavour": "proprietary"}),
        ("url", {"settings": {**host({}, {}, {})["settings"], **DRIVER_RUNFILE, "url": ""}},
         {"settings__url": DRIVER_RUNFILE["url"]}),
        ("sha256", {"settings": {**host({}, {}, {})["settings"], **DRIVER_RUNFILE, "sha256": ""}},
         {"settings__sha256": SUM}),
    )
}  # fmt: skip

DRIVER_CASES = {
    **DRIVERS,
    "a runfile beside Fabric Manager": lambda _: (
        planned_driver(
            settings={**host({}, {}, {})["settings"], **DRIVER_RUNFILE, "version": OLD},
            driver={**host({}, {}, {})["driver"], "provider": "runfile", "version": OLD, "runfile": OLD},
            facts__nvswitches=6,
        ),
        {
            "set nvidia_driver_provider: network_repo with nvidia_driver_replace: true": put(
                settings__provider="network_repo", settings__replace=True
            ),
            "nvidia_driver_fabric_manager: false if you bring it": put(settings__fabric_manager="false"),
        },
    ),
    "a driver of another version": lambda _: (
        checked_driver(driver=driver(version=OLD)),
        correct("nvidia_driver_version", expected__version=OLD),
    ),
    "a driver of another branch": lambda _: (
        checked_driver(driver=driver(version=OLD), expected__version="", expected__branch="535"),
        correct("nvidia_driver_branch", expected__branch="550"),
    ),
    "a driver of another version and branch": lambda _: (
        checked_driver(driver=driver(version=OLD), expected__version="535.1.1", expected__branch="535"),
        correct("nvidia_driver_version and nvidia_driver_branch", expected__version=OLD, expected__branch="550"),
    ),
    "a driver of another flavour": lambda _: (
        checked_driver(driver__flavour="proprietary"),
        correct("nvidia_driver_flavour", expected__flavour="proprietary"),
    ),
    "a driver without a module for a kernel": lambda _: (
        checked_driver(expected__kernels=["k", "k2"]),
        {"correct nvidia_driver_kernels; see make.log below /var/lib/dkms": put(expected__kernels=["k"])},
    ),
    "no Fabric Manager beside a driver": lambda _: (
        checked_driver(expected__fabric_manager=True),
        {
            "beside a driver that somebody else installs, install it there": put(driver__fabric_manager=NEW),
            "set nvidia_driver_fabric_manager: false": put(expected__fabric_manager=False),
        },
    ),
    "a driver that no repository has": lambda _: (
        packaged_driver(),
        {
            "correct nvidia_driver_version": put(request__version=OLD),
            "nvidia_driver_branch": put(request__version="", request__branch="550"),
            "bring the repository to where it has it": put(offered={"cuda-drivers": [f"{NEW}-1"]}),
        },
    ),
}

# ---- upgrades and containers


def upgraded(**changes):
    """Return a node before an upgrade of its driver, and the variables of the upgrade."""
    given = {"node": node(), "settings": {**OPTIONS}, "others": [node("n2")]}

    def plan(given):
        found = upgrade.plan([given["node"], *given["others"]], given["settings"], {})["findings"]
        return [Finding.from_dict(each) for each in found]

    return Rule(plan, given, **changes)


WITHOUT = {"set nvidia_driver_upgrade_without_way_back: true": put(settings__without_way_back=True)}
BROKEN = {"name": "gpu", "state": "fail", "found": "Xid 79", "hosts": ["n1"]}
VARIABLES = (("serial", "0", "25%"), ("runfiles", [{"version": "470"}], [RUNFILE]))
UPGRADE_CASES = {
    **{
        f"an upgrade with wrong {name}": lambda _, name=name, wrong=wrong, right=right: (
            upgraded(**{f"settings__{name}": wrong}),
            correct(f"nvidia_driver_upgrade_{name}", **{f"settings__{name}": right}),
        )
        for name, wrong, right in VARIABLES
    },
    "a canary that is no node": lambda _: (
        upgraded(settings__canary=["n3"]),
        {
            "correct nvidia_driver_upgrade_canary": put(settings__canary=["n2"]),
            "--limit": put(others=[node("n2"), node("n3")]),
        },
    ),
    "a canary without a GPU": lambda _: (
        upgraded(settings__canary=["n1"], node__plan={"action": "skip", "step": ""}),
        {"name another one": put(settings__canary=["n2"])},
    ),
    "an upgrade to no driver": lambda _: (
        upgraded(**{"node__settings": {**node()["settings"], "provider": "none", "version": ""}}),
        {
            "set nvidia_stack": put(node__settings=node()["settings"]),
            "nvidia_driver_provider, and the exact version (nvidia_driver_version)": put(
                node__settings=node()["settings"]
            ),
        },
    ),
    "an upgrade to an absent driver": lambda _: (
        upgraded(**{"node__settings": {**node()["settings"], "state": "absent"}}),
        {"leave nvidia_driver_state out": put(node__settings=node()["settings"])},
    ),
    "an upgrade to a branch": lambda _: (
        upgraded(**{"node__settings": {**node()["settings"], "version": ""}}),
        {
            "set nvidia_driver_version": put(node__settings=node()["settings"]),
            "nvidia_stack_overrides: {driver: {version: ...}}": put(node__settings=node()["settings"]),
        },
    ),
    "an upgrade of a broken canary": lambda _: (
        upgraded(settings__checks=[BROKEN], settings__canary=["n1"]),
        {
            "repair it first": put(settings__checks=[]),
            "leave the node out: --limit (and out of nvidia_driver_upgrade_canary)": together(
                put(node=node("n3")), put(settings__canary=[])
            ),
        },
    ),
    "an upgrade beside a kubelet": lambda _: (
        upgraded(node__kubernetes=True),
        {
            "kubectl cordon NODE, kubectl drain NODE --ignore-daemonsets, then set nvidia_driver_upgrade_cordoned: "
            "true; afterwards kubectl uncordon NODE": put(settings__cordoned=True)
        },
    ),
    "an upgrade without the runfile of before": lambda _: (
        upgraded(node__driver=driver(version="470.103.01", provider="runfile", runfile="470.103.01", packages={})),
        {"add it with version, sha256, and file or url": put(settings__runfiles=[RUNFILE])} | WITHOUT,
    ),
    "an upgrade without the packages of before": lambda _: (
        upgraded(node__missing=["nvidia-smi"]),
        {"run `apt-get update`": put(node__missing=[]), "add them to the mirror": put(node__missing=[])} | WITHOUT,
    ),
    "an upgrade of nodes in use": lambda _: (
        upgraded(node__uses=["python"], others=[]),
        {
            "wait for them": put(node__uses=[]),
            "end them": put(node__uses=[]),
            "set nvidia_driver_upgrade_busy: wait": put(settings__busy="wait"),
        },
    ),
}
CONTAINER_CASES = {
    "containers without a driver": lambda _: (
        Rule(lambda given: container_toolkit.cdi_findings(given["states"], ""), {"states": [{**GOOD, "driver": ""}]}),
        {
            "run the role nvidia_driver and reboot": put(states=[GOOD]),
            # The module is not asked then.
            "set container_runtime_nvidia to false for this host": put(states=[]),
        },
    )
}

CASES = {**DRIVER_CASES, **UPGRADE_CASES, **CONTAINER_CASES}
