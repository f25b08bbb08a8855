"""Debian 13's driver, built in earnest: the proprietary flavour, and the open one, which does not compile."""

import pytest


@pytest.fixture(scope="module")
def kernel(last):
    """The kernel that is built for."""
    (found,) = last.check_output("ls /lib/modules").split()
    return found


def test_the_proprietary_flavour_is_built(last, kernel):
    version = last.check_output(f"sudo modinfo -k {kernel} -F version nvidia-current")
    assert version.startswith("550.")
    assert f"nvidia-current/{version}, {kernel}, x86_64: installed" in last.check_output("sudo dkms status")
    assert "nvidia-kernel-dkms" in last.check_output("apt-mark showhold").split()


def test_a_flavour_that_does_not_compile_is_quoted_and_undone(run_playbook, last, kernel, node_names):
    run_playbook("converge.yml", nvidia_driver_state="absent").expect(0)
    done = run_playbook("converge.yml", nvidia_driver_flavour="open", timeout=1500)
    done.fails(f"Errors of the build: {kernel}: ")
    assert "error:" in done.text.partition("Errors of the build: ")[2]
    assert f"{node_names[-1]} has no driver, as before, and apt works." in done.text
    assert last.check_output("sudo dpkg --audit") == ""
    assert last.check_output("apt-mark showhold") == ""
    assert last.check_output("dpkg -l | grep -c '^[hi]i.*nvidia' || true") == "0"
    # apt installs something else, which it does not where packages are half configured.
    last.check_output(
        "sudo apt-get --yes install --no-install-recommends pciutils && sudo apt-get --yes purge pciutils"
    )
