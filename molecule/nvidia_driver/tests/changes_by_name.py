"""Upgrades with a canary, the distribution's packages, the vendor's installer, a reboot: minutes, so it runs by name.

pytest tests/changes_by_name.py in the scenario's folder, after `make molecule SCENARIO=nvidia_driver`, in order.
"""

import pytest
from lab_jobs import WORKER
from runfile_by_name import converged
from test_nvidia_driver import INSTALLER, KERNEL, NEW, OLD, RUNFILE, VENDORS, expect_whole, fake, parts, run, upgrade

# Fixtures that the tests get by their names.
__all__ = ["converged", "fake", "run", "upgrade"]
MODULE = f"/lib/modules/{KERNEL}/build"
BROKEN = "/var/lib/dkms/nvidia/build/nv-mmap.c:57:9: error: implicit declaration of function vm_flags_set"
BOOT_TIME = "stat -c %Z /proc/1"
# A file of another driver, as a removal by hand leaves it: the check of a newer driver finds it.
LEFTOVER = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.550.54.15"


def test_a_canary_that_fails_its_verification_gets_back_what_it_had_and_no_other_node_is_touched(
    upgrade, node, node_names
):
    first, *others = node_names
    mark = "stat -c %Y /var/lib/dpkg/status"
    before = {name: node(name).check_output(mark) for name in node_names}
    node(first).check_output(f"sudo touch {LEFTOVER}")
    try:
        done, table = upgrade(nvidia_driver_upgrade_serial=4)
    finally:
        node(first).check_output(f"sudo rm {LEFTOVER}")
    done.expect(2, f"rolled back on {first} found user space: {OLD} expected the new driver, verified")
    assert f"{first} 1 rolled back {NEW} (network_repo) user space: {OLD}" in table
    expect_whole(node(first), OLD)
    assert node(first).check_output(mark) != before[first], "it had the new one meanwhile"
    for name in others:
        assert f"{name} 2 waiting {NEW} (network_repo)" in table
        assert node(name).check_output(mark) == before[name]
        expect_whole(node(name), OLD)


def test_the_next_run_goes_on_and_leaves_out_a_node_with_a_job(upgrade, play, node, nodes, node_names):
    *others, last = node_names
    job = play.launch(WORKER, job_hosts=last).trains()
    try:
        done, table = upgrade(nvidia_driver_upgrade_serial=4)
    finally:
        nodes[last].kill_rank(job.job_id, 0)
        job.wait()
    done.expect(3, f"Not upgraded: {last}. Run this again")
    assert f"{last} - in use {NEW} (network_repo) job {job.job_id} {len(node_names)} nodes:" in table
    for name in others:
        assert f"{name} 1 upgraded {NEW}" in table or f"{name} 2 upgraded {NEW}" in table
        expect_whole(node(name), NEW)
    expect_whole(node(last), OLD)


@pytest.mark.mirrors
def test_the_distributions_packages_are_looked_for_there(run, last):
    try:
        done = run(
            nvidia_driver_provider="distro",
            nvidia_driver_version="535.1.99",
            nvidia_driver_replace=True,
            nvidia_driver_fabric_manager="false",
        )
    finally:
        last.check_output("sudo rm -f /etc/apt/sources.list.d/trainyard-nvidia-distro.sources")
    done.fails("found the distribution (Debian or Ubuntu) offers", "expected 535.1.99")
    assert parts(last)["nvidia-kernel-dkms"] == (OLD, "hi")


def test_a_build_that_fails_is_quoted_and_undone(run, last, last_name):
    last.check_output(f"echo '{BROKEN}' | sudo tee {MODULE}/broken-{NEW}")
    try:
        done = run(nvidia_driver_version=NEW)
    finally:
        last.check_output(f"sudo rm {MODULE}/broken-{NEW}")
    done.fails(f"none for kernel {KERNEL}; dkms status: nvidia/{NEW} added; errors of the build: {BROKEN}")
    assert "Errors of the build" not in done.text, "the errors are not repeated"
    assert f"{last_name} has driver {OLD} as before, and apt works." in done.text
    expect_whole(last, OLD)


def test_an_installer_with_another_sum_changes_nothing(run, last, last_name):
    done = run(**VENDORS, nvidia_driver_replace=True, nvidia_driver_sha256="0" * 64)
    done.fails("has sha256 ", f"expected {'0' * 64}")
    assert parts(last)["nvidia-kernel-dkms"] == (OLD, "hi")


def test_the_vendors_installer_replaces_packages_when_that_is_allowed(run, last):
    run(**VENDORS, nvidia_driver_replace=True).expect(0)
    assert parts(last) == {}
    arguments = last.file("/var/log/replay-installer.arguments").content_string.split()
    assert arguments == ["--silent", "--no-questions", "--no-x-check", "--dkms", f"--kernel-name={KERNEL}"]
    assert last.check_output("sudo dkms status") == f"nvidia/{RUNFILE}, {KERNEL}, x86_64: installed"
    assert not last.file(INSTALLER).exists
    run(**VENDORS).expect(0).changes_nothing()


def test_a_reboot_is_announced_and_made_only_when_allowed(run_playbook, last, last_name):
    """nvidia-smi's mismatch, as after an upgrade under a loaded module, goes with the restart that empties /run."""
    last.check_output(
        "sudo mv /usr/bin/nvidia-smi /usr/bin/nvidia-smi.real && sudo touch /run/replay-mismatch && printf '%s\\n' "
        "'#!/bin/sh' 'if [ -e /run/replay-mismatch ]; then' "
        "'echo Failed to initialize NVML: Driver/library version mismatch; exit 18; fi' 'exit 9' "
        "| sudo tee /usr/bin/nvidia-smi && sudo chmod 0755 /usr/bin/nvidia-smi"
    )
    before = last.check_output(BOOT_TIME)
    due = f"{last_name}: reboot due: nvidia-smi reports: Failed to initialize NVML: Driver/library version mismatch"
    run_playbook("reboot.yml", **VENDORS).expect(0, f"{due}. Not allowed: set nvidia_driver_reboot: true")
    assert last.check_output(BOOT_TIME) == before
    run_playbook("reboot.yml", "--limit", last_name, **VENDORS, nvidia_driver_reboot=True).expect(0, due)
    assert last.check_output(BOOT_TIME) != before
