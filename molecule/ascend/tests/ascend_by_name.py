"""An upgrade that waits for a restart, and packages of a mirror, which takes minutes."""

import os
from pathlib import Path

from test_ascend import BOOT_TIME, KERNELS, NOT_READY, ROOT, UPGRADE, alter

# A fixture that the tests get by its name.
__all__ = ["alter"]


def test_an_upgrade_waits_for_a_restart_that_must_be_allowed(run_playbook, alter, last, last_name):
    packages = {"replay_packages": UPGRADE, "ascend_boot_time_command": BOOT_TIME}
    preview = run_playbook("changed.yml", "--limit", last_name, "--check", **packages).expect(0)
    firmware = f"{last_name}: firmware 7.7.0.1.231 instead of 7.5.0.3.220: firmware-7.7.run --upgrade --quiet"
    driver = f"{last_name}: driver 25.0.rc1.1 instead of 24.1.0: driver-25.run --upgrade --quiet --install-for-all"
    assert 0 < preview.text.index(firmware) < preview.text.index(driver)
    assert "Version=24.1.0" in last.file(f"{ROOT}/driver/version.info").content_string

    done = run_playbook("changed.yml", "--limit", last_name, **packages).fails()
    assert "Version=25.0.rc1.1" in last.file(f"{ROOT}/driver/version.info").content_string
    assert (
        f"{NOT_READY} 1 finding. 1. restart on {last_name} found firmware 7.5.0.3.220 runs, 7.7.0.1.231 is installed"
    ) in done.text
    assert not last.file(f"{ROOT}/.trainyard-packages").exists

    before = last.check_output(BOOT_TIME)
    run_playbook("changed.yml", "--limit", last_name, **packages, ascend_restart=True).expect(0)
    assert last.check_output(BOOT_TIME) != before
    again = run_playbook("changed.yml", "--limit", last_name, **packages, ascend_restart=True)
    assert again.changes[last_name] == 0


def test_packages_come_from_a_mirror_by_their_sums(run_playbook, alter, first, node_names, last, last_name):
    """The mirror is the first node; the package is one whose version only the role's own record tells."""
    kernels = [{"component": "kernels", "version": "8.0.1", "file": "kernels.run"}]
    folder = os.environ.get("MOLECULE_EPHEMERAL_DIRECTORY") or Path(__file__).resolve().parents[3] / ".cache"
    # converge.yml made that of 8.0.0.
    content = Path(folder, "ascend-packages", KERNELS).read_text().replace("8.0.0", "8.0.1")
    first.check_output(
        f"sudo mkdir /srv/mirror && sudo tee /srv/mirror/kernels.run >/dev/null <<'PACKAGE'\n{content}PACKAGE\n"
    )
    first.check_output("sudo systemd-run --unit=replay-mirror python3 -m http.server 8099 --directory /srv/mirror")
    try:
        sum_of = first.check_output("sha256sum /srv/mirror/kernels.run").split()[0]
        source = {"ascend_source": f"http://{node_names[0]}:8099/", "step": "main"}
        wrong = run_playbook(
            "changed.yml", "--limit", last_name, **source, ascend_packages=[{**kernels[0], "sha256": "0" * 64}]
        )
        right = run_playbook(
            "changed.yml", "--limit", last_name, **source, ascend_packages=[{**kernels[0], "sha256": sum_of}]
        )
    finally:
        first.check_output("sudo systemctl stop replay-mirror; sudo rm -r /srv/mirror")
    wrong.fails("checksum")
    assert right.rc == 0, right.output
    assert "8.0.1" in last.file(f"{ROOT}/ascend-toolkit/latest/opp_kernel/version.info").content_string
