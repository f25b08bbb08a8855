"""Settings of drivers, data sets and OneFlow that site.yml refuses, and what readers do for each part of the advice."""

from __future__ import annotations

from ansible.module_utils.trainyard.nvidia import driver_plan
from ansible.module_utils.trainyard.software import datasets, oneflow
from test_nvidia_driver_plan import RUNFILE, host

PAGE = "oneflow_find_links to [https://release.oneflow.info] or a mirror"
WHEEL = {"wheel_url": "https://x/y.whl", "wheel_sha256": "0" * 64}
INSTALLED_RUNFILE = {"provider": "runfile", "version": "550.54.15", "runfile": "550.54.15"}


class Driver:
    """A host with a driver and the settings of the role nvidia_driver."""

    def __init__(self, settings=(), state=(), **facts):
        self.settings, self.state, self.facts = dict(settings), dict(state), facts

    def launch(self, _):
        """Return the findings of the plan of the host."""
        return driver_plan.plan_hosts([host(self.settings, self.state, self.facts)])[1]


class DataSets:
    """The data sets of dataset_sets."""

    def __init__(self, *sets):
        self.sets = list(sets)

    def launch(self, _):
        """Return the findings on the list."""
        return datasets.plan(self.sets)[1]


class OneFlow:
    """The settings of the role oneflow."""

    def __init__(self, version, **settings):
        self.settings = {"version": version, **settings}

    def launch(self, _):
        """Return what is wrong with the settings."""
        return [*oneflow.input_findings(oneflow.Settings(**self.settings))]


def settings(**changes):
    return lambda world: world.settings.update(changes)


def last(**changes):
    return lambda world: world.sets[-1].update(changes)


CASES = {
    # Drivers.
    "a branch of another version": lambda _: (
        Driver({"branch": "470"}),
        {"correct nvidia_driver_branch": settings(branch="550")},
    ),
    "the runfile of another version": lambda _: (
        Driver({**RUNFILE, "version": "470.1.1"}),
        {"make file name and version agree": settings(version=RUNFILE["version"])},
    ),
    "a driver of two sources": lambda _: (
        Driver(state={"provider": "unknown", "version": "550.54.15"}),
        {"keep it: nvidia_driver_provider: none": settings(provider="none")},
    ),
    "a driver of the distribution": lambda _: (
        Driver(state={"provider": "distro", "version": "550.54.15"}),
        {
            "set nvidia_driver_provider: distro and nvidia_driver_version: 550.54.15 to keep it": settings(
                provider="distro", version="550.54.15"
            ),
            "nvidia_driver_replace: true": settings(replace=True),
        },
    ),
    "a driver of a runfile": lambda _: (
        Driver(state=INSTALLED_RUNFILE),
        {
            "set nvidia_driver_provider: runfile and nvidia_driver_version: 550.54.15 to keep it": settings(
                provider="runfile", version="550.54.15"
            ),
            "nvidia_driver_replace: true": settings(replace=True),
        },
    ),
    "Secure Boot without a key": lambda _: (
        Driver(secure_boot="enabled"),
        {"set nvidia_driver_mok_key and nvidia_driver_mok_certificate": settings(mok=True)},
    ),
    "no Fabric Manager": lambda _: (
        Driver(RUNFILE, nvswitches=6),
        {
            "set nvidia_driver_provider: network_repo": settings(provider="network_repo"),
            "nvidia_driver_fabric_manager: false if you bring it": settings(fabric_manager="false"),
        },
    ),
    "no GPU": lambda _: (Driver(gpus=[]), {"set nvidia_gpus: 0 for a host without GPUs": settings(gpus="0")}),
    "fewer GPUs than there were": lambda _: (Driver({"gpus": "9"}), {"correct nvidia_gpus": settings(gpus="8")}),
    # Data sets.
    "two data sets of one name": lambda _: (
        DataSets({"name": "digits"}, {"name": "digits"}),
        {"give one of them another name and kind": last(name="other", kind="digits")},
    ),
    "an unknown kind of data set": lambda _: (
        DataSets({"name": "own"}),
        {"correct it; a set with a name of its own needs its kind": last(kind="generated")},
    ),
    "a wrong sum of a data set": lambda _: (
        DataSets({"name": "cifar10", "sha256": "x"}),
        {"correct it": last(sha256="a" * 64)},
    ),
    # OneFlow.
    "a build that OneFlow does not have": lambda _: (
        OneFlow("0.8.0+cu117"),
        {
            f"correct it and set {PAGE}": settings(version="0.8.0+cu112", places=["https://release.oneflow.info"]),
            "set oneflow_wheel_url and oneflow_wheel_sha256": settings(**WHEEL),
        },
    ),
    "a build that a mirror does not have": lambda _: (
        OneFlow("0.8.0+cu117", places=["/wheels"]),
        {
            "correct it": settings(version="0.8.0+cu112"),
            "set oneflow_wheel_url and oneflow_wheel_sha256": settings(**WHEEL),
        },
    ),
    "a release that no index has": lambda _: (
        OneFlow("0.7.0"),
        {
            f"set oneflow_version to a build and {PAGE}": settings(version="0.7.0+cpu", places=["/wheels"]),
            "set oneflow_wheel_url and oneflow_wheel_sha256": settings(**WHEEL),
        },
    ),
    "an unknown release of OneFlow": lambda _: (
        OneFlow("0.9.1"),
        {
            "set oneflow_python_min and oneflow_python_max to the Pythons that it has wheels for, and add to "
            "oneflow_packages what it needs": settings(python_min="3.8", python_max="3.10", packages=["numpy==1.23.5"])
        },
    ),
}
