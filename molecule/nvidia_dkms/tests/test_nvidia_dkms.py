"""Debian's own driver, built in earnest: 535 signed as for Secure Boot, then tesla 470 in its place, then nothing."""

import pytest


@pytest.fixture(scope="module")
def kernel(last):
    """The kernel that was built for."""
    (found,) = last.check_output("ls /lib/modules").split()
    return found


def expect_module(host, kernel, branch, dkms):
    """The module of a branch is built for the kernel, and everything is at one version, held, and whole."""
    version = host.check_output(f"sudo modinfo -k {kernel} -F version {dkms}")
    assert version.startswith(f"{branch}.")
    assert host.check_output(f"sudo modinfo -k {kernel} -F vermagic {dkms}").split()[0] == kernel
    assert f"{dkms}/{version}, {kernel}, x86_64: installed" in host.check_output("sudo dkms status")
    packages = host.check_output("dpkg-query -W -f '${Package} ${Version} ${db:Status-Abbrev}\\n' '*nvidia*'")
    parts = [line.split() for line in packages.splitlines() if line.split()[2:3] not in ([], ["un"], ["rc"])]
    held = {name for name, _, status in parts if status == "hi"}
    assert {name for name, found, _ in parts if found.startswith(f"{version}-")} <= held
    assert "nvidia-persistenced" in held
    assert "nvidia" not in host.check_output("sudo apt-get --simulate dist-upgrade | grep ^Inst || true")
    assert host.check_output("sudo dpkg --audit") == ""
    assert "nvidia" not in host.check_output("systemctl list-units --failed --no-legend")
    # There is no GPU.
    assert host.run("nvidia-smi").rc != 0


def test_535_is_built_and_signed(last, kernel):
    expect_module(last, kernel, 535, "nvidia-current")
    assert last.check_output(f"sudo modinfo -k {kernel} -F signer nvidia-current") == "trainyard replay"
    assert (
        last.check_output("sudo stat -c '%a %U' /etc/trainyard/mok/mok.key /etc/trainyard/mok") == "600 root\n700 root"
    )


def test_another_branch_takes_its_place(run_playbook, last, kernel):
    run_playbook("converge.yml", nvidia_driver_branch="470", timeout=1500).expect(0)
    expect_module(last, kernel, 470, "nvidia-tesla-470")
    assert "nvidia-current" not in last.check_output("sudo dkms status")
    assert last.run("dpkg-query -W -f '${db:Status-Abbrev}' nvidia-kernel-dkms").stdout[:2] != "hi"


def expect_nothing(host):
    """There is no driver, no hold, and apt has nothing to repair."""
    assert host.check_output("apt-mark showhold") == ""
    assert host.check_output("dpkg -l | grep -c '^[hi]i.*nvidia' || true") == "0"
    assert host.check_output("sudo dpkg --audit") == ""


def test_removal_leaves_nothing(run_playbook, last):
    run_playbook("converge.yml", nvidia_driver_state="absent", nvidia_driver_branch="470").expect(0)
    expect_nothing(last)
    assert last.check_output("sudo dkms status") == ""
    assert not last.file("/etc/trainyard/mok").exists
    last.check_output("sudo apt-get --yes purge dkms 'linux-headers-*' && sudo apt-get --yes --purge autoremove")


def test_a_driver_that_nothing_was_built_for_is_noticed_and_undone(run_playbook, last, node_names):
    """Debian's packages install without headers and without a word; dkms says `added`."""
    try:
        run_playbook("converge.yml", nvidia_driver_manage_headers=False, timeout=900).fails(
            "added; its headers are not installed", f"{node_names[-1]} has no driver, as before, and apt works."
        )
        expect_nothing(last)
    finally:
        gone = run_playbook("converge.yml", nvidia_driver_state="absent")
    assert gone.rc == 0, gone.output
