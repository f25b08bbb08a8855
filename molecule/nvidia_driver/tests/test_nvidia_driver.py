"""The role nvidia_driver: one exact version with its module, up and down; or the reason, and the node as before.

NVIDIA's repository, its installer and dkms are fakes; apt, dpkg, systemd, the role and the job are real.
"""

import json

import pytest
from lab_jobs import WORKER

OLD, NEW = "550.54.15", "550.127.08"
RUNFILE = "470.103.01"
KERNEL = "6.1.0-99-replay"
MODULE = f"/lib/modules/{KERNEL}/build"
PARTS = {
    "cuda-drivers-550",
    "libcuda1",
    "libnvidia-cfg1",
    "libnvidia-ml1",
    "libnvidia-ptxjitcompiler1",
    "nvidia-driver",
    "nvidia-driver-libs",
    "nvidia-fabricmanager-550",
    "nvidia-kernel-dkms",
    "nvidia-kernel-support",
    "nvidia-modprobe",
    "nvidia-persistenced",
    "nvidia-smi",
}
BROKEN = "/var/lib/dkms/nvidia/build/nv-mmap.c:57:9: error: implicit declaration of function vm_flags_set"
VENDORS = {
    "nvidia_driver_provider": "runfile",
    "nvidia_driver_version": RUNFILE,
    "nvidia_driver_fabric_manager": "false",
}
INSTALLER = "/var/lib/trainyard-root/nvidia-driver"
BOOT_TIME = "stat -c %Z /proc/1"
# A file of another driver, as a removal by hand leaves it: the check of a newer driver finds it.
LEFTOVER = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.550.54.15"


@pytest.fixture(scope="module")
def fake(first, node_names, node_vars):
    """Return the variables by which the role finds the fake of NVIDIA's repository, which converge.yml has put up."""
    fingerprints = json.loads(first.check_output("cat /srv/nvidia-fake/fingerprints.json"))
    return {
        "nvidia_repository_url": f"http://{node_vars[node_names[0]]['ansible_host']}:8099",
        "nvidia_repository_key_fingerprint": fingerprints["nvidia"],
    }


@pytest.fixture(scope="module")
def run(run_playbook, last_name, fake):
    """Run the role on the last node, or where a further --limit says."""
    return lambda *arguments, **given: run_playbook(
        "changed.yml", "--limit", last_name, *arguments, **{**fake, **given}
    )


def parts(host):
    """Versions of the driver's packages, whether they are held, by name."""
    lines = host.check_output("dpkg-query -W -f '${Package} ${Version} ${db:Status-Abbrev}\\n'").splitlines()
    found = [line.split() for line in lines if "nvidia" in line or line.startswith(("cuda-drivers", "libcuda1"))]
    return {name: (version.partition("-")[0], status) for name, version, status in found if status != "rc"}


def expect_whole(host, version):
    """All parts are there at one version and held, the module is built, and nothing would move."""
    assert parts(host) == dict.fromkeys({*PARTS, f"nvidia-driver-pinning-{version}"}, (version, "hi"))
    assert host.check_output("sudo dkms status") == f"nvidia/{version}, {KERNEL}, x86_64: installed"
    assert host.check_output("nv-fabricmanager --version").endswith(version)
    assert "nvidia" not in host.check_output("sudo apt-get --simulate dist-upgrade | grep ^Inst || true")
    host.run_expect([0], "sudo apt-get check")
    assert host.check_output("sudo dpkg --audit") == ""


def test_every_part_is_there_at_one_version_and_held_and_nothing_failed_without_gpu(host):
    expect_whole(host, OLD)
    assert "nvidia" not in host.check_output("systemctl list-units --failed --no-legend")
    assert host.service("nvidia-fabricmanager").is_enabled
    assert "blacklist nouveau" in host.file("/etc/modprobe.d/trainyard-nouveau.conf").content_string


@pytest.fixture(scope="module")
def upgrade(run_playbook, fake, tmp_path_factory):
    """Run playbooks/nvidia_upgrade.yml, from one table on; `table` is its text."""
    runs = tmp_path_factory.mktemp("upgrade")

    def run(*arguments, **given):
        given = {**fake, "nvidia_driver_version": NEW, "trainyard_runs": str(runs), **given}
        done = run_playbook("upgrade.yml", *arguments, **given)
        texts = [file.read_text() for file in runs.glob("nvidia-upgrade-*/table.txt")]
        return done, " ".join(" ".join(texts).split())

    return run


def test_bad_input_of_an_upgrade_is_said_before_anything_is_touched(upgrade, node_names):
    done, table = upgrade("--check", nvidia_driver_upgrade_canary=["n9"], nvidia_driver_upgrade_serial=0)
    assert done.rc == 2
    assert "The upgrade of the NVIDIA driver cannot begin: 2 findings. Nothing was changed." in done.text
    assert f"found n9 expected hosts of the groups nvidia and compute within --limit: {node_names[0]}" in done.text
    assert "found 0 expected a number from 1 on" in done.text
    assert table == ""


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


def test_a_preview_says_what_it_would_do(run, last, last_name):
    run("--check", nvidia_driver_version=NEW).expect(0, f"{last_name}: driver {NEW} instead of {OLD} (network_repo)")
    assert parts(last)["nvidia-smi"] == (OLD, "hi")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"nvidia_driver_version": "550.90.07"},
            "package cuda-drivers-550 or cuda-drivers on {host} found http://{first}:8099/debian12/x86_64 offers "
            "cuda-drivers-550 550.127.08-1, 550.54.15-1; cuda-drivers 560.35.03-1, 550.127.08-1, 550.54.15-1 expected "
            "550.90.07",
        ),
        (
            {"nvidia_driver_provider": "runfile", "nvidia_driver_version": RUNFILE},
            "driver from elsewhere on {host} found driver 550.54.15 from network_repo expected none, or one from "
            "runfile do set nvidia_driver_provider: network_repo and nvidia_driver_version: 550.54.15 to keep it, or "
            "nvidia_driver_replace",
        ),
    ],
)
def test_what_stands_in_the_way_is_said_before_anything_is_changed(
    run, last, last_name, node_vars, node_names, given, said
):
    run(**given).fails(said.format(host=last_name, first=node_vars[node_names[0]]["ansible_host"]))
    assert parts(last)["nvidia-kernel-dkms"] == (OLD, "hi")


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


def test_removal_leaves_nothing(run, run_playbook, node, node_names, fake):
    """One node has the packages, the last one the vendor's driver."""
    run_playbook("changed.yml", nvidia_driver_state="absent", **fake).expect(0)
    for name in node_names:
        host = node(name)
        assert parts(host) == {}
        assert host.check_output("sudo dkms status") == ""
        assert host.check_output("apt-mark showhold") == ""
        for path in ("/etc/modprobe.d/trainyard-nouveau.conf", "/usr/bin/nvidia-uninstall", "/var/lib/nvidia"):
            assert not host.file(path).exists
        assert "nvidia-driver" not in host.check_output("ls /etc/apt/preferences.d")
        assert "nvidia-persistenced" not in host.check_output("ls /etc/systemd/system")
    run(nvidia_driver_state="absent").changes_nothing()
